"""The first parts of README.md: the demo's scripts beside the demo, and four answers."""

from made_records import make_record, make_run, rows_of, write_record

from dataflow.analysis.comparison import times_link
from dataflow.analysis.result import group_results
from dataflow.records.schema import Link
from dataflow.report.pages import build_agreement, page_sections
from dataflow.report.render import to_markdown
from dataflow.report.tables import format_significant

NODES = {"driver": 0, "policy": 0, "reference": 1, "reward": 1}
LAYOUT = {"placement": "spread", "existing_cluster": True, "place": "reference=1,reward=1", "link": "10 Gbit/s"}


def build(*records):
    """Return the text of each part by its name."""
    built = page_sections(group_results(records))
    return {section.name: to_markdown([section]) for section in built if section.name in ("demo", "answers")}


def around(seconds, **changes):
    return [make_run([seconds * factor], **changes) for factor in (0.99, 1, 1.01)]


def demo(queues, graph, **changes):
    return [make_record("driver-queue", *around(queues), **changes),
            make_record("shm", *around(graph), runtime="graph", **changes)]  # fmt: skip


def on_nodes(transport, seconds, runtime="store"):
    runs = around(seconds, nodes=NODES, links=[Link(0, 1, 1, 10**6, [0.02]), Link(1, 0, 1, 10**6, [0.02])])
    return make_record(transport, *runs, runtime=runtime, table="cluster", layout=LAYOUT)


def test_the_commands_of_the_demo_have_the_time_of_100_iterations_and_the_table_has_the_demos_own():
    text = build(*demo(2.0, 0.25), *demo(0.5, 0.125, flags={"retain_memory": True}))["demo"]
    assert ".venv/bin/python simulate_chat_learn_data_flow.py          # Execution time: about 200 seconds\n" in text
    assert ".venv/bin/python ray_cg_simulate_chat_learn_data_flow.py   # Execution time: about 25 seconds\n" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert rows[0] == "| the demo, on its GPUs | 279.23 s | 35.37 s | 7.9 |"
    assert rows[1].startswith("| here | 200 s | 25 s | 8 (7.")
    assert "(`--retain-memory`) | 50 s | 12.5 s | 4 (3." in rows[2]
    assert "100 iterations, messages of 32 MiB to 160 MiB." in text and "Test CPU" in text


def test_the_records_of_the_first_screen_are_preferred_and_both_scripts_are_needed():
    text = build(*demo(2.0, 0.25), *demo(1.0, 0.5, table="headline"))["demo"]
    assert "| here | 100 s | 50 s | 2 (" in text
    assert "| here | 200 s" not in text
    assert set(build(make_record("refs", [1.0]))) == {"answers"} and build() == {}


def test_the_answers_name_times_of_the_link_the_ranked_copies_and_views_apart():
    views = {"runtime": "graph"}
    records = [
        *demo(2.0, 0.25), make_record("refs", *around(1.0)),
        make_record("mapped", *around(0.05), runtime="graph", flags={"copy_out": True}),
        make_record("mapped", *around(0.001, readers_own_a_copy=False), **views),
        make_record("zero-copy", *around(0.05, readers_own_a_copy=False), **views),
        make_record("mapped", *around(0.0001, readers_own_a_copy=False), runtime="torch"),
        on_nodes("shm", 0.4, "graph"), on_nodes("gloo", 0.08, "torch"),
    ]  # fmt: skip
    several, copies, only_read, gpus = build(*records)["answers"].splitlines()
    links = {r.name: format_significant(times_link(r)) for r in group_results(records) if times_link(r)}
    assert several == (
        "* **Several nodes** (2 nodes, 10 Gbit/s, 448 MiB per iteration). Times as long as the network alone: "
        f"`torch gloo` {links['torch gloo']}, `graph shm` {links['graph shm']}."
    )
    assert float(links["torch gloo"]) < float(links["graph shm"])
    assert copies.startswith(
        "* **One node** (on Ray, 448 MiB per iteration). If readers own a copy, `graph shm` is the"
    )
    assert "`store driver-queue` takes 8 times as long" in copies and "mapped" not in copies
    assert only_read.startswith(
        "* **One node, readers that only read.** `graph zero-copy` takes about 50 ms, because no"
    )
    assert "; `graph mapped` takes about 1 ms, because nothing is copied (" in only_read and "times as" not in only_read
    assert gpus.startswith("* **GPUs:** not measured.")


def test_the_scripts_are_divided_by_the_suite_configuration_by_configuration(tmp_path):
    for side, seconds in (("suite", 1.0), ("scripts", 2.0)):
        (tmp_path / side).mkdir()
        for transport in ("refs", "driver-queue"):
            write_record(tmp_path / side / f"{transport}.json", make_record(transport, *around(seconds)))
    assert [[*list(row.values())[:4], row["verdict"]] for row in rows_of(build_agreement(tmp_path))] == [
        ["store driver-queue", "2,000", "1,000", "2", "slower"], ["store refs", "2,000", "1,000", "2", "slower"],
    ]  # fmt: skip
