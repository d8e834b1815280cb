"""ChatLearn's episodes as a table, a picture and words, from made-up records."""

from made_records import a_record, a_run, written

import plot_results
from common.analysis.results import results_of
from common.charts.episode_chart import message_labels
from common.pages import generated
from common.text.episodes import (
    columns,
    findings,
    groups,
    is_episode,
    is_flat_episode,
    markdown,
    short_name,
)

SIZES = {"rows": 4, "prompt_len": 8, "response_len": 8}


def an_episode(transport, seconds, runtime="store", message="packed", copied=True, **sizes):
    """A message takes so long, eight of them in an episode."""
    run = a_run([8 * seconds] * 8, episode_seconds=[8 * seconds], payload_copied=copied)
    flags = {"episode": 8, "in_flight": 8} | sizes.pop("flags", {})
    return a_record(transport, run, runtime=runtime, message=message, flags=flags, **SIZES, **sizes)


RECORDS = (
    an_episode("ref-queue", 0.4, message="fields", as_shipped=True),
    an_episode("ref-queue", 0.2, message="fields"),
    an_episode("ref-queue", 0.1),
    an_episode("shm", 0.04, "graph", message="fields"),
    an_episode("shm", 0.01, "graph"),
    an_episode("mapped", 0.004, "graph", copied=False),
)


def cells():
    results = results_of(RECORDS)
    return {short_name(r): {column.header: column.cell(r) for column in columns(results)} for r in results}


def test_a_message_costs_its_part_of_a_whole_episode_and_factors_are_over_the_queues_as_shipped():
    lines = cells()
    shipped, mapped = lines["store ref-queue as shipped"], lines["graph mapped packed"]
    assert (shipped["s an episode"], shipped["ms a message"], shipped["samples/s"]) == ("3.2", "400", "10")
    assert (shipped["over as shipped"], shipped["in flight"], shipped["ends with"]) == ("1x", "8", "bytes")
    assert (mapped["ms a message"], mapped["over as shipped"], mapped["ends with"]) == ("4", "100x", "views")
    assert mapped["of ceiling"] == "-"


def test_what_the_demos_factor_becomes_is_said_in_words():
    text = findings(results_of(RECORDS))
    for words in (
        "The demo promises 7.9 times", "as shipped (400 ms a message of 4 samples)", "compact messages 2 times",
        "packed messages 4 times", "with the messages as they are 10 times (`graph shm`)",
        "bytes of their own 40 times (`graph shm packed`)", "whose readers map 100 times (`graph mapped packed`)",
    ):  # fmt: skip
        assert words in text
    assert findings(results_of(RECORDS[1:])) == ""


def test_flat_messages_and_trips_one_by_one_are_no_episodes():
    assert is_episode(results_of(RECORDS[:1])[0])
    for record in (
        a_record("refs", [1.0]),
        a_record("refs", [1.0], message="packed", flow="ppo"),
        a_record("refs", [1.0], flags={"episode": 2}),
    ):
        assert not is_episode(results_of([record])[0])


def test_a_packed_message_stands_beside_a_flat_one_of_as_many_bytes():
    episodes = results_of(RECORDS)
    moved = episodes[0].record.bytes_per_trip
    flags, run = {"episode": 8, "in_flight": 8}, a_run([0.064] * 8, episode_seconds=[0.064])

    def flat(payload, transport="shm", **more):
        return a_record(transport, run, runtime="graph", flags=flags | more, payload=payload)

    records = [flat(moved), flat(2 * moved), flat(moved, episode=4), flat(moved, "bytes")]
    found = [results_of([record])[0] for record in records]
    assert [is_flat_episode(result, episodes) for result in found] == [True, False, False, True]
    text = markdown(episodes, found)
    assert text.count("| graph shm | 10 | 8 | 1.25 | 1, 1 |") == 1 and text.count(" flat tensors of as many bytes") == 1


def test_they_have_a_table_and_pictures_of_their_own_beside_a_ladder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plot_results, "ROOT", tmp_path)
    page = tmp_path / "docs" / "chatlearn.md"
    page.parent.mkdir()
    page.write_text("above\n{}\nold\n{}\nbelow\n".format(*generated.markers("episodes")))
    records = [*RECORDS, a_record("refs", [1.0, 1.1])]
    paths = [written(tmp_path / f"{index}.json", record) for index, record in enumerate(records)]
    assert plot_results.main([*paths, "--pages", str(tmp_path)]) == 0
    assert {"chatlearn_episodes.png", "chatlearn_messages.png", "benchmark_result.png"} <= {
        p.name for p in tmp_path.iterdir()
    }
    text = page.read_text()
    assert text.startswith("above\n") and text.endswith("below\n") and "old" not in text
    assert "| graph mapped packed | 8 | 0.032 | 4 | 1,000 |" in text
    assert "The demo promises 7.9 times" in capsys.readouterr().out


def test_other_messages_and_longer_episodes_are_a_table_and_a_panel_of_their_own(tmp_path, capsys):
    others = [an_episode("refs", 0.1, flow="ppo"), *RECORDS]
    paths = [written(tmp_path / f"{index}.json", record) for index, record in enumerate(others)]
    assert plot_results.main(paths) == 0
    out = capsys.readouterr().out
    assert "online DPO, episodes of 8 messages of 4 samples" in out and "RLHF (PPO), episodes of 8" in out
    assert [len(group) for group in groups(results_of(others))] == [len(RECORDS), 1]


def test_an_edge_of_the_picture_says_how_many_tensors_it_carries():
    labels = message_labels(results_of(RECORDS[:1])[0].flow)
    assert labels["driver -> policy"].endswith("\n4 tensors")
    assert labels["policy -> reward"].endswith("\n7 tensors\n8 strings")
