"""Results of records, the chart, the pictures and the README's tables, from made-up records."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from made_records import a_chain, a_record, a_run, written

import plot_results
from common.analysis.ladder import baseline_of, causes, on_one_ceiling
from common.analysis.results import results_of
from common.charts.ladder_chart import facts
from common.flow.catalogue import build_flow
from common.pages import generated, markdown
from common.record.rows import BASELINE, LADDER
from common.record.schema import Cost
from common.text import screen
from common.text.tables import COLUMNS, PEAK, table

ROOT = Path(plot_results.__file__).parent
PICTURES = ["benchmark_result.png", "chatlearn_data_flow.png", "chatlearn_with_raycg.png", "simulation.png"]


@pytest.fixture(autouse=True)
def nothing_is_published(monkeypatch, tmp_path):
    """A test that draws by mistake must not change the repository's pictures or README."""
    monkeypatch.setattr(plot_results, "ROOT", tmp_path)


@pytest.fixture
def write(tmp_path):
    def write(*records) -> list[str]:
        return [written(tmp_path / f"{index}.json", record) for index, record in enumerate(records)]

    return write


def mapped(seconds, **changes):
    return a_run(seconds, payload_copied=False, **changes)


def waived(reason="no GPU"):
    return a_run([], status="waived", reason=reason, first_seconds=None, payload_copied=None, processes={})


def failed(seconds=(), reason="reward died", **changes):
    return a_run(list(seconds), status="failed", reason=reason, **changes)


THREE = (
    a_record("driver-queue", [2.0, 2.0, 2.2]),
    a_record("zero-copy", mapped([0.02, 0.025, 0.03]), runtime="graph"),
    a_record("nccl", waived(), runtime="graph"),
)


def cells(result, columns=(*COLUMNS, PEAK)):
    return {column.header: column.cell(result) for column in columns}


def test_draws_every_picture_and_prints_the_table(write, tmp_path, capsys):
    assert plot_results.main([*write(*THREE), "--output-dir", str(tmp_path / "img")]) == 0
    assert sorted(path.name for path in (tmp_path / "img").iterdir()) == PICTURES
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "img").iterdir())
    lines = capsys.readouterr().out.splitlines()
    names = [line.split("  ")[0] for line in lines[:4]]
    assert names == ["transport", "store driver-queue", "graph nccl", "graph zero-copy"]  # as the ladder has them
    assert [line.split()[-1] for line in lines[1:4]] == ["1x", "-", "80x"]
    assert "graph nccl: waived, no GPU" in lines


def test_the_readme_holds_the_same_numbers_between_its_markers(write, tmp_path):
    readme = tmp_path / "README.md"
    start, end = generated.markers("results")
    advice_start, advice_end = generated.markers("advice")
    readme.write_text(f"above\n{start}\n| outdated |\n{end}\nbelow\n{advice_start}\n| old |\n{advice_end}\nend\n")
    assert plot_results.main([*write(*THREE), "--output-dir", str(tmp_path), "--pages", str(tmp_path)]) == 0
    text = readme.read_text()
    assert text.startswith(f"above\n{start}\n") and text.endswith(f"\n{advice_end}\nend\n")
    assert f"{end}\nbelow\n{advice_start}\n" in text
    assert "outdated" not in text and "| old |" not in text
    # 448 MiB in 25 ms are not said as a rate: nobody moved them. 448 MiB in 2 s are 0.235 GB/s.
    # Of three trips there is no p95 and no p99.
    end = "| mapped | - | - | - | 1.0% | 0 | ok | 0.0 | 80x |"
    assert f"| graph zero-copy | 448 MiB | 0 B | 5,000 | 1 | 20 | 25 | - | - | 30 {end}" in text
    end = "| 0.235 | 1.0% | - | - | <1% | 0 | ok | 0.0 | 1x |"
    assert f"| store driver-queue | 448 MiB | 0 B | 5,000 | 1 | 2,000 | 2,000 | - | - | 2,200 {end}" in text


def test_two_records_of_one_row_are_one_result():
    first = a_record("refs", a_run([1.0, 1.2], ceiling_before_seconds=[0.01], ceiling_after_seconds=[0.03]))
    elsewhere = {"nodes": {"policy": 1}}  # where it was found to run is no part of what was asked
    second = a_record("refs", a_run([2.0], ceiling_before_seconds=[0.05], stored_bytes=6 * 2**20), layout=elsewhere)
    other = a_record("refs", [9.0], flags={"zero_copy": True})
    one, zero_copy = results_of([second, other, first])
    assert (one.name, zero_copy.name) == ("store refs", "store refs --zero-copy")
    assert (one.seconds, len(one.runs), one.failure) == ([2.0, 1.0, 1.2], 2, None)
    assert one.ceiling_seconds == 0.03
    assert cells(one)["stored"] == "2 MiB"
    # 1 ms of the suite in each run, over a warm-up trip each and three timed ones, by a median of 1.2 s.
    assert one.harness_share == pytest.approx(0.002 / 5 / 1.2)


def test_two_runs_of_one_record_and_two_records_of_a_run_each_are_the_same():
    (together,) = results_of([a_record("refs", [1.0, 1.2], [2.0])])
    (apart,) = results_of([a_record("refs", [1.0, 1.2]), a_record("refs", [2.0])])
    assert cells(together) == cells(apart)
    assert together.harness_share == apart.harness_share


@pytest.mark.parametrize(
    "asked",
    [
        {"flags": {"copy_out": True}},
        {"device": "cuda"},
        {"message": "packed"},
        {"batch_size": 7},
        {"flow": "round-trip"},
        {"runtime": "graph"},
        {"layout": {"placement": "spread"}},
    ],
    ids=str,
)
def test_what_makes_another_row_is_not_merged(asked):
    assert len(results_of([a_record("refs", [1.0]), a_record("refs", [1.0], **asked)])) == 2


def test_a_traced_run_is_a_row_of_its_own():
    traced = a_run([1.0], spans=[("driver", 0, "wait", "in one process", 0, 0.0, 1e6)], trips_us=[(0.0, 1e6)])
    results = results_of([a_record("refs", [1.0]), a_record("refs", traced), a_record("refs", [1.1])])
    assert [(len(result.runs), result.traced) for result in results] == [(2, False), (1, True)]


def test_a_delayed_row_is_a_row_of_its_own_and_its_name_says_so():
    delayed = a_record("refs", [1.1])
    delayed.arguments["inject"] = "policy:1:delay=100ms"
    found = results_of([a_record("refs", [1.0]), delayed, a_record("driver-queue", [2.0])])
    names = [result.name for result in found]
    assert names == ["store driver-queue", "store refs", "store refs --inject policy:1:delay=100ms"]
    assert baseline_of(found[2], found) is None


def test_a_failed_run_beside_one_that_is_ok_gives_no_samples_and_is_not_hidden(write, tmp_path, capsys):
    records = a_record("refs", failed([8.0, 9.0]), [1.0, 1.2]), a_record("refs", [1.1])
    (result,) = results_of(records)
    assert (result.status, result.seconds) == ("ok", [1.0, 1.2, 1.1])
    assert result.failure == "1 of 3 runs failed, reward died"
    assert (cells(result)["wrong bytes"], cells(result)["status"]) == ("0", "ok")
    assert plot_results.main([*write(*records), "--output-dir", str(tmp_path)]) == 0
    assert "store refs: 1 of 3 runs failed, reward died" in capsys.readouterr().out.splitlines()


def test_wrong_bytes_of_one_run_are_those_of_its_row():
    (result,) = results_of([a_record("refs", [1.0], failed([1.0], wrong_bytes=8))])
    assert (cells(result)["wrong bytes"], cells(result)["status"]) == ("8", "WRONG")


def test_a_row_without_a_run_that_is_ok_shows_what_it_finished():
    (partial,) = results_of([a_record("refs", failed([1.0, 3.0], processes={}))])
    assert (partial.status, partial.seconds, partial.failure) == ("failed", [1.0, 3.0], "failed, reward died")
    shown = cells(partial)
    assert (shown["median ms"], shown["stored"], shown["peak GiB"], shown["status"]) == ("2,000", "-", "-", "failed")
    (nothing,) = results_of([a_record("refs", waived())])
    assert list(cells(nothing).values()) == ["store refs", "448 MiB", *["-"] * 14, "waived", "-"]


def test_peak_memory_is_that_of_every_process_of_one_run():
    costs = {"driver": Cost(2**30), "policy": Cost(2**29), "reward": Cost()}
    (result,) = results_of([a_record("refs", a_run([1.0], processes=costs), a_run([1.0], processes=costs))])
    assert cells(result)["peak GiB"] == "1.5"


def test_a_record_without_a_run_yet_is_no_row():
    assert results_of([a_record("refs")]) == []


def test_the_rows_of_a_ladder_share_one_ceiling():
    records = [a_record(name, a_run([1.0], ceiling_before_seconds=[seconds]))
               for name, seconds in (("refs", 0.01), ("bytes", 0.02), ("ref-queue", 0.06))]  # fmt: skip
    unknown = a_record("driver-queue", a_run([1.0], ceiling_before_seconds=[]))
    assert {result.ceiling_seconds for result in on_one_ceiling(results_of([*records, unknown]))} == {0.02}
    assert cells(results_of([unknown])[0])["of ceiling"] == "-"


def refusal(capsys, *argv: str) -> str:
    assert plot_results.main(list(argv)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    return captured.err


def test_bad_records_are_refused_in_one_line(write, tmp_path, capsys):
    (path,) = write(a_record("refs", [1.0]))
    (tmp_path / "cut.json").write_text(Path(path).read_text()[:-50])
    assert "truncated" in refusal(capsys, path, str(tmp_path / "cut.json"))
    assert "cannot read" in refusal(capsys, str(tmp_path / "none.json"))
    assert "no trips" in refusal(capsys, *write(a_record("refs", [])))
    assert "ok" in refusal(capsys, *write(a_record("refs", failed())))


@pytest.mark.parametrize("unknown", [{"flow": "unheard-of"}, {"sizes": {"unheard_of": 1}}], ids=["flow", "size"])
def test_a_flow_that_this_version_does_not_have_is_refused(write, capsys, unknown):
    record = a_record("refs", [1.0])
    newer = msgspec.structs.replace(record, row=msgspec.structs.replace(record.row, **unknown))
    assert "is of a flow that is unknown here" in refusal(capsys, *write(newer))


def test_records_of_unlike_machines_are_refused(write, tmp_path, capsys):
    one, other = a_record("refs", [1.0, 1.0]), a_record("shm", [1.0, 1.0], environment={"cpu_model": "Another"})
    assert "--mixed" in refusal(capsys, *write(one, other))
    same = a_record("refs", [2.0, 2.0], environment={"cpu_model": "Another"})
    assert "store refs was measured on several machines" in refusal(capsys, *write(one, same), "--mixed")
    assert plot_results.main([*write(one, other), "--mixed", "--output-dir", str(tmp_path)]) == 0


def test_rows_that_alternated_stand_beside_their_like_alone(write, tmp_path, capsys):
    alone, other = a_record("refs", [1.0]), a_record("bytes", waived())
    one = a_record("shm", a_run([1.0], alternation="x"))
    assert "alternated with others" in refusal(capsys, *write(alone, one))
    assert plot_results.main([*write(one, other), "--output-dir", str(tmp_path)]) == 0


def test_a_waived_row_is_of_no_machine(write, tmp_path, capsys):
    """What was not measured does not depend on where."""
    other = a_record("nccl", waived(), runtime="graph", environment={"cpu_model": "Another"})
    assert plot_results.main([*write(other, a_record("refs", [1.0, 1.0])), "--output-dir", str(tmp_path)]) == 0
    assert "Another" not in capsys.readouterr().out


def test_other_sizes_and_other_flows_are_refused_in_one_ladder(write, capsys):
    one = a_record("refs", [1.0])
    smaller, other = (
        a_record("shm", [1.0], runtime="graph", **asked) for asked in ({"batch_size": 8}, {"flow": "ppo"})
    )
    assert "1.json moves 3.5 MiB of online-dpo, " in refusal(capsys, *write(one, smaller))
    assert "0.json 448 MiB of online-dpo: plot them apart" in refusal(capsys, *write(one, other))


def test_flags_and_markers_that_are_not_there_are_refused(write, tmp_path, capsys):
    (path,) = write(a_record("refs", [1.0]))
    assert "--help" in refusal(capsys, path, "--unknown")
    readme = tmp_path / "README.md"
    readme.write_text(generated.markers("advice")[0])
    assert "markers" in refusal(capsys, path, "--pages", str(tmp_path))


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({}, "store refs"),
        ({"flags": {"zero_copy": True, "copy_out": True}}, "store refs --zero-copy --copy-out"),
        ({"flags": {"copy_out": True, "episode": 10}}, "store refs --copy-out --episode 10"),
        ({"message": "fields"}, "store refs"),
        ({"message": "packed"}, "store refs --message packed"),
        ({"layout": {"placement": "spread"}}, "store refs --placement spread"),
        ({"layout": {"placement": "spread", "address": True}}, "store refs --address"),
        ({"device": "cuda", "flags": {"threads": 2}}, "store refs --threads 2 on cuda"),
    ],
    ids=str,
)
def test_a_row_is_called_by_what_makes_it_another(asked, name):
    (result,) = results_of([a_record("refs", [1.0], **asked)])
    assert result.name == name


def test_rows_stand_in_the_ladders_order():
    asked = [
        ("graph", "mapped", {}),
        ("store", "carrier-pigeon", {}),  # of a newer version: last, and without a cause
        ("store", "refs", {"device": "cuda"}),
        ("store", "refs", {"flags": {"zero_copy": True, "copy_out": True}}),  # no rung: after the one without flags
        ("store", "refs", {}),
    ]
    results = results_of([a_record(name, [1.0], runtime=runtime, **more) for runtime, name, more in asked])
    assert [result.name for result in results] == [
        "store refs", "store refs --zero-copy --copy-out", "store refs on cuda", "graph mapped", "store carrier-pigeon",
    ]  # fmt: skip
    assert causes(results) == {}


SLOW, FAST = [2.0, 2.1, 1.9, 2.0, 2.0], [1.0, 1.05, 0.95, 1.0, 1.0]
SLOW_RUNS, FAST_RUNS = (
    [[factor * one for one in SLOW] for factor in SLOW],
    [[factor * one for one in FAST] for factor in FAST],
)
SHM = LADDER["graph shm"]


def pickle_and_shm(above, below, **asked):
    """Two rungs with the trips of each of their runs."""
    records = a_record("pickle", *above, runtime="graph"), a_record("shm", *below, runtime="graph", **asked)
    return results_of(records)


@pytest.mark.parametrize(
    ("above", "below", "said"),
    [
        (SLOW_RUNS, FAST_RUNS, "4× faster than"),
        (FAST_RUNS, SLOW_RUNS, "4× slower than"),
        (FAST_RUNS, FAST_RUNS, "no clear difference from"),
        ([[1.0], [2.0], [3.0]], [[1.1], [1.9], [2.9]], "no clear difference from"),
        (SLOW_RUNS, [[0.01] * 100], "one run: no verdict against"),
        (SLOW_RUNS, FAST_RUNS[:2], "2 runs: no verdict against"),
    ],
    ids=["faster", "slower", "the same", "within the noise", "one run", "two runs"],
)
def test_a_rung_says_how_it_compares_with_the_one_above_and_why(above, below, said):
    assert causes(pickle_and_shm(above, below)) == {"graph shm": f"{said} {SHM.above}: {SHM.because}"}


def test_like_is_compared_with_like():
    """A rung on a GPU neither with one on the CPU, nor with the CPU's baseline."""
    results = pickle_and_shm(SLOW_RUNS, FAST_RUNS, device="cuda")
    assert causes(results) == {}
    queues = results_of([a_record("driver-queue", SLOW, device=device) for device in ("cpu", "cuda")])
    assert [baseline_of(result, queues).name for result in results] == [BASELINE, f"{BASELINE} on cuda"]


def test_an_episode_and_a_baseline_that_failed_have_no_speed_up():
    episode, queue = results_of([a_record("refs", FAST, flags={"episode": 10}), a_record("driver-queue", SLOW)])[::-1]
    assert baseline_of(episode, [queue]) is None
    under_way, broken = results_of(
        [a_record("refs", FAST, flags={"in_flight": 2}), a_record("driver-queue", failed(SLOW))]
    )[::-1]
    assert baseline_of(under_way, [queue]) is None
    assert baseline_of(broken, [broken]) is None


def test_rungs_are_compared_with_rungs_that_stand_above_them():
    order = list(LADDER)
    for name, row in LADDER.items():
        assert bool(row.above) == bool(row.because), name
        assert not row.above or order.index(row.above) < order.index(name), name


def test_a_microbenchmark_has_a_table_of_its_own(write, tmp_path):
    """It moves other bytes than the ladder, and is no rung of it."""
    chains = a_chain("refs", [0.003, 0.003], "store"), a_chain("mapped", [0.0003, 0.0003], "graph")
    sections = ("advice", "results", "microbenchmarks")
    readme = tmp_path / "README.md"
    readme.write_text("".join("{}\n| outdated |\n{}\n".format(*generated.markers(section)) for section in sections))
    paths = write(*chains, *THREE)
    assert plot_results.main([*paths, "--output-dir", str(tmp_path), "--pages", str(tmp_path)]) == 0
    ladder, hops = readme.read_text().split(generated.markers("microbenchmarks")[0])
    assert "outdated" not in ladder + hops
    assert "chain-2" not in ladder
    # Three messages follow one another, so a hop is a third of the trip.
    assert "**chain-2**" in hops
    assert "| store refs | 13 | 2 | 3,000 | - | 1,000 | - |" in hops
    assert "| graph mapped | 13 | 2 | 300 | - | 100 | 10x |" in hops
    assert "store driver-queue" not in hops


def test_the_advice_says_what_was_measured_here_and_what_was_not():
    text = markdown.advice(results_of(THREE))
    last = {line.split("`")[1]: line.split("|")[-2].strip() for line in text.splitlines()[2:]}
    said = {"store driver-queue": "2,000 ms", "graph zero-copy": "25 ms", "graph nccl": "waived"}
    assert last == {name: said.get(name, "not run") for name, row in LADDER.items() if row.take}
    assert len({line.count("|") for line in text.splitlines()}) == 1
    twenty = a_record("driver-queue", [index / 10 for index in range(1, 21)])
    assert "| 1,050 ms, p95 1,905 |" in markdown.advice(results_of([twenty]))
    uneven = a_record("driver-queue", [0.1, 0.1, 1.0])
    assert "| 100 ms, mean 400 |" in markdown.advice(results_of([uneven]))


def test_microbenchmarks_of_several_flows_leave_the_pictures_of_the_ladder_alone(write, tmp_path, capsys):
    paths = write(a_chain("shm", [0.001, 0.0011], "graph"), a_record("shm", [1.0], runtime="graph", flow="round-trip"))
    assert plot_results.main([*paths, "--output-dir", str(tmp_path / "img")]) == 0
    printed = capsys.readouterr().out
    assert "graph shm" in printed and "pictures" not in printed
    assert list((tmp_path / "img").iterdir()) == []


def test_any_one_flow_at_one_size_is_a_ladder_and_only_the_demos_is_said_to_be_chatlearns(write, tmp_path, capsys):
    paths = write(a_chain("shm", [0.001, 0.0011], "graph"), a_chain("refs", [0.01, 0.011], "store"))
    assert plot_results.main(paths) == 0
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["benchmark_result.png", "simulation.png"]
    assert f"pictures: {tmp_path / 'benchmark_result.png'}, {tmp_path / 'simulation.png'}" in capsys.readouterr().out


def test_nothing_is_drawn_into_the_repository_unless_it_is_published(write, tmp_path, monkeypatch):
    monkeypatch.setattr(plot_results, "ROOT", tmp_path / "suite")
    (tmp_path / "suite").mkdir()
    sections = "".join("{}\n{}\n".format(*generated.markers(section)) for section in ("results", "advice"))
    (tmp_path / "suite" / "README.md").write_text(sections)
    paths = write(*THREE)
    assert plot_results.main(paths) == 0
    assert (list((tmp_path / "suite").iterdir()), (tmp_path / PICTURES[0]).exists()) == (
        [tmp_path / "suite" / "README.md"], True,
    )  # fmt: skip
    assert plot_results.main([*paths, "--publish"]) == 0
    assert sorted(path.name for path in (tmp_path / "suite" / "img").iterdir()) == PICTURES
    assert "| store driver-queue |" in (tmp_path / "suite" / "README.md").read_text()


def test_the_table_is_had_as_csv_and_as_markdown_and_as_nothing_else(write, capsys):
    paths = write(*THREE)
    assert plot_results.main([*paths, "--format", "csv"]) == 0
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("transport,payload,stored,first ms,") and first.endswith(",status,peak GiB,speed-up")
    assert second.startswith('store driver-queue,448 MiB,0 B,"5,000",') and len(rest) == 2
    assert plot_results.main([*paths, "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[0] + line[-1] for line in lines] == ["||"] * 5


def test_a_narrow_screen_shows_the_columns_that_matter_most_and_names_the_others():
    results = results_of(THREE)
    lines = table(results, width=80).splitlines()
    assert max(map(len, lines[:-1])) <= 80
    shown = [word for word in ("transport", "median ms", "p95 ms", "GB/s", "of ceiling", "status") if word in lines[0]]
    assert shown == ["transport", "median ms", "p95 ms", "GB/s", "of ceiling", "status"]
    assert "max ms" in lines[-1] and "max ms" not in lines[0]
    assert table(results) == table(results, width=500)


def test_a_row_that_beats_its_own_ceiling_is_told_and_one_that_maps_is_not():
    fast = [0.01, 0.011, 0.012]
    copied, viewed = results_of([a_record("refs", fast), a_record("mapped", mapped(fast), runtime="graph")])
    assert (copied.above_ceiling, viewed.above_ceiling) == (pytest.approx(0.02 / 0.011), None)
    assert any("182% of its ceiling" in warning for warning in screen.warnings(copied))
    assert "Faster than the ceiling of its own run: store refs (182%)" in facts([copied, viewed])
    assert results_of([a_record("refs", SLOW)])[0].above_ceiling is None


def test_code_that_is_in_no_commit_is_said_to_be():
    environment = {"git_commit": "0123456789abcdef", "git_dirty": True}
    (changed,) = results_of([a_record("refs", [1.0], environment=environment)])
    (clean,) = results_of([a_record("refs", [1.0], environment=environment | {"git_dirty": False})])
    assert facts([changed]).endswith("commit 0123456789 with changes that are in no commit.")
    assert facts([clean]).endswith("commit 0123456789.")


def test_the_suites_own_work_is_shown_where_it_is_over_a_hundredth():
    shares = {
        f"{seconds}": cells(results_of([a_record("refs", [seconds] * 3)])[0])["harness"] for seconds in (0.01, 1.0)
    }
    assert shares == {"0.01": "2.5%", "1.0": "<1%"}


def test_a_row_that_was_under_its_ceiling_in_every_run_is_impossible_and_has_no_bar(write, tmp_path, capsys):
    fast = [a_run([0.007, 0.008, 0.009], ceiling_after_seconds=[0.0118]) for _ in range(3)]
    (result,) = results_of([a_record("refs", *fast)])
    assert (result.status, cells(result)["median ms"], cells(result)["status"]) == ("impossible", "8", "impossible")
    assert "in each of its 3 runs" in result.failure and "by 20.0% or more" in result.failure
    paths = write(a_record("refs", *fast), a_record("driver-queue", SLOW))
    assert plot_results.main([*paths, "--output-dir", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert f"store refs: {result.failure}" in printed and "`store refs` is the fastest" not in printed


@pytest.mark.parametrize(
    "runs",
    [
        [a_run([0.008])] * 2,
        [*[a_run([0.008])] * 4, a_run([0.021])],
        [a_run([0.0199], ceiling_all_cores_seconds=[0.0198])] * 5,
        [mapped([0.008])] * 5,
        [a_run([0.008], ceiling_before_seconds=[], ceiling_all_cores_seconds=[])] * 5,
    ],
    ids=["two runs", "one run is not", "within the passes", "views", "no ceiling"],
)
def test_a_row_is_called_impossible_by_no_less(runs):
    assert results_of([a_record("refs", *runs)])[0].status == "ok"


def test_a_row_that_says_why_it_may_be_above_its_ceiling_is_held_to_that_of_all_cores():
    flags = {"copy_out": True, "episode": 10}
    between, below = (
        results_of([a_record("mapped", *[a_run([seconds])] * 5, runtime="graph", flags=flags)])[0]
        for seconds in (0.011, 0.009)  # the ceiling is 20 ms, that of all cores 10 ms
    )
    assert (between.status, below.status) == ("ok", "impossible")


@pytest.mark.parametrize("module", ["plot_results", "common.text.screen"])
def test_what_reads_records_needs_neither_ray_nor_torch_and_a_screen_no_pictures(module):
    heavy = {"ray", "torch", "scipy"} | ({"matplotlib"} if module != "plot_results" else set())
    code = f"import sys, {module}; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


def test_the_screen_shows_flow_and_ceiling_before_the_trips(capsys):
    run = a_run([], ceiling_before_seconds=[0.03, 0.02, 0.025], ceiling_all_cores_seconds=[0.02, 0.012])
    screen.print_start(build_flow("round-trip", {"payload_bytes": 2**20}), 1, run)
    assert capsys.readouterr().out.splitlines() == [
        "round trip: 2 MiB a trip",
        "  driver -> role-1              1 MiB",
        "  role-1 -> driver              1 MiB",
        "ceiling: 25 ms, one warm copy an edge by 1 thread (0.0839 GB/s); 12 ms by all cores at best",
    ]


def test_the_screen_shows_all_runs_of_a_record_as_one_row(capsys, tmp_path):
    screen.print_end(a_record("refs", [1.0, 3.0], [2.0, 2.0], failed([])), tmp_path / "x.json")
    captured = capsys.readouterr()
    header, row, *_, last = captured.out.splitlines()
    shown = dict(zip(re.split(r"  +", header), re.split(r"  +", row), strict=True))
    assert (shown["runs"], shown["median ms"], last) == ("2", "2,000", "Execution time: 8 seconds")
    assert captured.err == "error: reward died\n"


def test_the_screen_says_what_became_of_a_run_that_failed(capsys, tmp_path):
    last = failed([1.0, 3.0], setup_seconds={"group": 0.5}, spilled_bytes=2**20)
    screen.print_end(a_record("refs", last), tmp_path / "x.json")
    captured = capsys.readouterr()
    header, row, *rest = captured.out.splitlines()
    assert header.startswith("transport") and row.startswith("store refs (spilled)") and row.endswith("failed")
    assert rest[0] == "once, before the first trip: group 500 ms"
    assert [line.split()[0] for line in rest[1:3]] == ["warning:", "warning:"]
    assert "spilled" in rest[1] and "unstable" in rest[2]
    assert rest[3:] == [f"record: {tmp_path / 'x.json'}", "Execution time: 4 seconds"]
    assert captured.err == "error: reward died\n"
