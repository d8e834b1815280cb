# SPDX-License-Identifier: Apache-2.0
"""Cells of tables, also those of several nodes and of the pages, and what a script prints."""

import re
from pathlib import Path

import pytest
from made_records import make_record, make_run, rows_of, write_campaign, write_record

from dataflow.analysis.comparison import Pair
from dataflow.analysis.links import link_seconds
from dataflow.analysis.result import Result, group_results
from dataflow.records import files
from dataflow.records.schema import Link, NodeCosts, ProcessCost
from dataflow.report import render
from dataflow.report.pages import build_agreement, load_rows, page_sections
from dataflow.report.sections import sections
from dataflow.report.sentences import PAIR_COLUMNS
from dataflow.report.tables import COPY_TO_KEEP, MAIN_COLUMNS, REUSED_BUFFER, Column, make_table
from dataflow.report.text_table import MAX_BAR

VERSIONS = {"ray": "2.60.0", "torch": "2.13.0"}
LAYOUT = {
    "placement": "spread",
    "existing_cluster": True,
    "place": "reference=1,reward=1",
    "link": "10 Gbit/s",
}
NODES = {"driver": 0, "policy": 0, "reference": 1, "reward": 1}
MIB = 2**20
THREE_GIB = {"processes": {"driver": ProcessCost(peak_memory_bytes=3 * 2**30)}}


def cells(*arguments, **changes):
    table = make_table([Result((make_record(*arguments, **changes),))], MAIN_COLUMNS)
    return dict(zip(table.headers, table.cells[0], strict=True))


def test_the_reference_a_skipped_configuration_and_wrong_bytes_are_marked():
    assert cells("memcpy", [0.1], runtime="torch")["configuration"] == "torch memcpy (reference)"
    skipped = make_run([], status="skipped", reason="no GPU", first_seconds=None, processes={})
    row = cells("nccl", skipped, runtime="graph")
    assert (row["status"], row["ms per iteration"], row["x memcpy"], row["peak GiB"]) == (
        "skipped",
        "-",
        "-",
        "-",
    )
    row = cells(
        "refs", make_run([0.1]), make_run([0.1], wrong_bytes=3, status="failed", reason="wrong")
    )
    assert row["status"] == "WRONG"


def test_a_narrow_terminal_leaves_out_columns_by_rank_and_names_them():
    columns = [
        Column("name", str),
        Column("rare", str, rank=2),
        Column("often", str, rank=1),
        Column("always", str),
    ]
    table = make_table(["a|b"], columns)
    assert render.to_text(table).splitlines() == [
        "name  rare  often  always",
        "a|b    a|b    a|b     a|b",
    ]
    lines = render.to_text(table, 20).splitlines()
    assert lines[0] == "name  often  always" and lines[-1].endswith("rare)")
    assert render.to_text(table, 3).splitlines()[0] == "name  always"
    assert render.to_markdown_table(table).splitlines()[-1] == "| a\\|b | a\\|b | a\\|b | a\\|b |"


def test_a_terminal_shows_the_seven_most_important_columns_a_page_eight_and_a_flag_all():
    columns = [
        Column(f"c{rank}", lambda item: "1", rank=rank) for rank in (9, 0, 1, 2, 3, 4, 5, 6, 7)
    ]
    table = make_table([1], columns)
    assert render.to_text(table).splitlines()[0].split() == [f"c{rank}" for rank in range(7)]
    assert render.to_text(table).splitlines()[-1] == "(--columns all also shows: c9, c7)"
    assert len(render.to_text(table, count=render.ALL_COLUMNS).splitlines()[0].split()) == 9
    assert (
        render.to_markdown_table(table).splitlines()[0]
        == "| c0 | c1 | c2 | c3 | c4 | c5 | c6 | c7 |"
    )


def test_a_wide_terminal_has_a_bar_per_row_and_a_pipe_has_none():
    times = {"slow": "1,000", "fast": "250", "failed": "-"}
    table = make_table(
        [*times], [Column("configuration", str), Column("ms", times.get, is_time=True)]
    )
    bars = [line.partition("  ")[2].count("#") for line in render.to_text(table, 80).splitlines()]
    assert bars == [0, MAX_BAR, MAX_BAR // 4, 0]
    assert "#" not in render.to_text(table) and "#" not in render.to_text(table, 25)


def test_a_page_has_the_baselines_and_the_fastest_rows_and_says_how_many_it_leaves_out():
    records = [make_record("driver-queue", [9.0]), make_record("refs", [8.0])]
    records += [
        make_record("gloo", [1.0 + n], runtime="rdt", flags={"threads": n + 2}) for n in range(12)
    ]
    (section,) = sections(group_results(records))
    page = render.to_markdown_table(section.table)
    shown = [line.split(" | ")[0].strip("| ") for line in page.splitlines()[2:14]]
    assert (
        shown[0] == "rdt gloo --threads 11"
        and "store driver-queue" in shown
        and "store refs" in shown
    )
    assert "rdt gloo --threads 12" not in page and page.splitlines()[-1].startswith(
        "Rows that are not shown: 2 (`"
    )


def test_times_of_a_row_are_per_iteration_however_many_iterations_are_in_flight():
    """The times of the iterations, 4 ms and once 9 ms, are 24 ms with six in flight, because each waits for five."""
    groups = [0.024] * 119 + [0.054]
    row = cells(
        "gloo",
        make_run([0.024] * 720, group_seconds=groups),
        runtime="torch",
        flags={"in_flight": 6},
    )
    assert (row["ms per iteration"], row["p95 ms"]) == ("4", "4")
    row = cells("gloo", make_run([0.004] * 714 + [0.009] * 6, group_seconds=groups), runtime="torch",
                flags={"check_every": 6})  # fmt: skip
    assert (row["ms per iteration"], row["p95 ms"]) == ("4", "4")


def test_a_script_prints_the_flow_first_and_warnings_and_record_last(tmp_path, capsys):
    failed = make_run([], status="failed", reason="reward died", processes={})
    record = make_record("refs", make_run([1.0, 1.5], steal_cores=1.5), failed)
    render.print_flow(Result((record,)).flow)
    text = capsys.readouterr().out
    assert "448 MiB per iteration" in text and "driver -> policy" in text
    render.print_end(record, tmp_path / "a.json", render.MAX_COLUMNS)
    text, errors = capsys.readouterr()
    assert "store refs" in text and str(tmp_path / "a.json") in text
    assert "warning: the hypervisor took 1.5 cores" in text
    assert errors == "error: reward died\n"


@pytest.mark.parametrize(("in_flight", "seconds"), [
    # The policy sends one message to node 1. With a reference of its own on node 2, the reward model waits for it.
    (1, {"reference": 1, "reward": 1, "total": 3.0 + 7.0}), (2, {"reference": 1, "reward": 1, "total": 7.0}),
    (1, {"reference": 2, "reward": 1, "total": 1.5 + 11.0 + 7.0}),
])  # fmt: skip
def test_nodes_send_at_the_same_time_only_if_inputs_or_iterations_allow_it(in_flight, seconds):
    total = seconds.pop("total")
    links = [Link(0, 1, 1, 96 * MIB, [3.0, 4.0, 2.0]), Link(0, 1, 4, 96 * MIB, [5.0]),
             Link(1, 0, 1, 160 * MIB, [7.0]), Link(0, 2, 1, 96 * MIB, [1.5]),
             Link(2, 1, 1, 64 * MIB, [11.0])]  # fmt: skip
    run = make_run([9.0] * 3, nodes=NODES | seconds, links=links, group_seconds=[9.0])
    result = Result([make_record("refs", run, flags={"in_flight": in_flight})])
    assert link_seconds(result) == pytest.approx(total)


def test_an_actor_does_not_wait_for_the_result_of_another_one():
    links = [Link(1, 0, 1, 8 * MIB, [3.0]), Link(2, 0, 1, 8 * MIB, [4.0])]
    run = make_run([9.0] * 3, nodes={"driver": 0, "a": 1, "b": 2}, links=links)
    assert link_seconds(
        Result([make_record("refs", run, flow="a, b -> driver: 8MiB")])
    ) == pytest.approx(4.0)


@pytest.mark.parametrize(("runtime", "transport", "flags", "milliseconds", "crosses", "times"), [
    ("store", "refs", {}, 1393, 256, 6.30), ("store", "refs", {"zero_copy": True}, 354.5, 256, 1.60),
    ("graph", "shm", {}, 4974, 256, 22.5), ("torch", "gloo", {}, 341.5, 352, 1.12),
    ("rdt", "gloo", {}, 447.9, 352, 1.47),
])  # fmt: skip
def test_times_are_compared_with_the_links_which_a_message_crosses_once_per_node_or_once_per_reader(
    runtime, transport, flags, milliseconds, crosses, times
):  # fmt: skip
    """At 10 Gbit/s. The policy's message has two readers on node 1, for which the link was timed twice."""
    links = [Link(0, 1, 1, 192 * MIB, [0.1662]), Link(1, 0, 1, 160 * MIB, [0.1381])]
    nodes = NODES | ({"proxy": 0} if runtime == "rdt" else {})
    costs = {"0": NodeCosts(busy_cores=1.5), "1": NodeCosts(busy_cores=0.5)}
    measured = {
        "nodes": nodes,
        "links": links,
        "node_costs": costs,
        "readers_own_a_copy": not flags,
    }
    run = make_run([milliseconds / 1e3] * 3, **measured)
    local = make_run([0.01] * 3, nodes=dict.fromkeys(nodes, 0))
    fields = {"runtime": runtime, "table": "cluster", "flags": flags}
    records = [
        make_record(transport, run, layout=LAYOUT, **fields),
        make_record(transport, local, **fields),
    ]
    (section,) = sections(group_results(records))
    rows = {row["layout"]: row for row in rows_of(section)}
    assert rows["all actors on the driver's node"]["x link"] == "-"
    row = rows["2 nodes, 10 Gbit/s"]
    assert (float(row["x link"]), row["crosses the links"]) == (
        pytest.approx(times, rel=0.05),
        f"{crosses} MiB",
    )
    assert float(row["ms of the link alone"]) == pytest.approx(milliseconds / times, rel=0.05)
    assert row["busy cores (largest of all nodes)"] == "1.5"


SEEN, REQUESTED = "object store, reference", "object store, reference (as requested)"


@pytest.mark.parametrize(("paths", "cell"), [
    ((SEEN, SEEN), None), ((REQUESTED, REQUESTED), "as requested"), ((SEEN, REQUESTED), "partly as requested"),
])  # fmt: skip
def test_the_table_says_which_data_paths_nothing_has_shown(paths, cell):
    flow = "driver -> a: 1MB; a -> b: 1MB"  # and an acknowledgement, whose path does not count
    run = make_run(
        [0.1], data_paths={"driver -> a": paths[0], "a -> b": paths[1], "b -> driver": REQUESTED}
    )
    (section,) = sections(group_results([make_record("refs", run, flow=flow)]))
    assert rows_of(section)[0].get("data path") == cell


@pytest.mark.parametrize(
    ("error", "dashes"), [(0.0, set()), (0.0003, {"make"}), (0.003, {"make", "write"})]
)
def test_the_stages_of_a_trace_are_not_shown_if_clocks_cannot_tell_them(error, dashes):
    ends = {"make": (0.0, 3e3), "write": (3e3, 20e3), "wait": (20e3, 100e3)}
    spans = [("driver", 0, stage, 0, begin, end, 0) for stage, (begin, end) in ends.items()]
    costs = {"1": NodeCosts(clock_error_seconds=error)}
    run = make_run([0.1], spans=spans, iterations_us=[(0.0, 100e3)], nodes=NODES, node_costs=costs)
    built = sections(
        group_results(
            [make_record("memcpy", run, runtime="torch", table="cluster-stages", traced=True)]
        )
    )
    (by_stage,) = [
        section for section in built if section.title.startswith("Milliseconds by stage")
    ]
    (row,) = rows_of(by_stage)
    assert {stage for stage in ends if row[stage] == "-"} == dashes


def build_pages(*records, campaigns=Path("no campaigns")):
    """Return the text of each part by its name."""
    built = page_sections(group_results(records), load_rows(campaigns))
    parts = {}
    for name in ("demo", "answers"):
        of_name = [section for section in built if section.name == name]
        if of_name:
            parts[name] = render.to_markdown(of_name)
    return parts


def around(seconds, **changes):
    return [make_run([seconds * factor], **changes) for factor in (0.99, 1, 1.01)]


def on_nodes(transport, seconds, runtime="store"):
    runs = around(
        seconds, nodes=NODES, links=[Link(0, 1, 1, 10**6, [0.02]), Link(1, 0, 1, 10**6, [0.02])]
    )
    return make_record(transport, *runs, runtime=runtime, table="cluster", layout=LAYOUT)


@pytest.mark.study("chatlearn")  # the records of the agreement have its transport
def test_the_demo_has_times_of_100_iterations_from_campaigns(tmp_path):
    kept = {"retain_memory": True}
    for day, seconds in (("1-a", 2.0), ("2-b", 3.0)):
        memory = {"processes": {"driver": ProcessCost(peak_memory_bytes=3 * 2**30)}}
        times = [
            ("store driver-queue", {}, seconds, memory),
            ("graph shm", {}, seconds / 8, memory),
            ("store driver-queue", kept, seconds / 4, memory),
            ("graph shm", kept, seconds / 20, memory),
        ]
        environment = {"clock_code": "a", "boot": day, "versions": VERSIONS}
        write_campaign(tmp_path / day, *times, environment=environment)
    text = build_pages(campaigns=tmp_path)["demo"]
    scripts = ("simulate_chat_learn_data_flow.py          # iterations: about 200 to 300 seconds\n",
               "ray_cg_simulate_chat_learn_data_flow.py   # iterations: about 25 to 38 seconds\n")  # fmt: skip
    assert all(f".venv/bin/python {script}" in text for script in scripts)
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert rows[0] == "| the demo, on its GPUs | 279.23 s | 35.37 s | 7.9 | - |"
    assert rows[1] == "| here | 200, 300 s | 25, 38 s | 8, 8 | 3 and 3 |"
    assert rows[2].endswith("(`--retain-memory`) | 50, 75 s | 10, 15 s | 5, 5 | 3 and 3 |")
    assert (
        "100 iterations, messages of 32 MiB to 160 MiB." in text
        and "Campaigns: 2 (1-a, 2-b)" in text
    )
    assert build_pages() == {}


@pytest.mark.study("chatlearn")
def test_the_answers_name_copies_on_ray_by_their_factor_views_apart_and_times_of_the_link(tmp_path):
    view = {"readers_own_a_copy": False}
    for day in ("1-a", "2-b", "3-c"):
        copies = {
            "store driver-queue": 2.0,
            "graph shm": 0.25,
            "store refs": 1.0,
            "torch gloo": 0.1,
        }
        times = [(name, {}, seconds, THREE_GIB) for name, seconds in copies.items()]
        times.append(("graph zero-copy", {"copy_out": True}, 0.15, THREE_GIB))
        write_campaign(tmp_path / day, *times, ("graph zero-copy", {}, 0.05, view))
    sentence, table, others = build_pages(
        on_nodes("shm", 0.4, "graph"),
        on_nodes("bytes", 0.3, "graph"),
        on_nodes("gloo", 0.08, "torch"),
        campaigns=tmp_path,
    )["answers"].split("\n\n")
    assert sentence.startswith(
        "**One node.** On Ray, 448 MiB per iteration; readers may keep their copy. Each row says how many"
    )
    assert "failed" not in sentence
    assert table.splitlines() == [
        "| configuration | times as fast | peak memory GiB |",
        "| --- | ---: | ---: |",
        "| `graph shm` | 8 | 3 |",
        "| `store refs` | 2 | 3 |",
        "| `store driver-queue` | 1 | 3 |",
    ]
    reused, views, *several, gpus = others.splitlines()
    assert reused.startswith(
        "* **One node, readers get a buffer that is reused.** `graph zero-copy --copy-out` takes 150 ms. The next"
    )
    assert "`graph zero-copy` takes 50 ms. No reader copies" in views
    assert "times as fast" not in reused + views
    assert [re.findall("`(.*?)`", line) for line in several] == [
        ["graph bytes", "graph shm"],  # the fastest first
        ["torch gloo"],
    ]
    for line, readers in zip(several, (COPY_TO_KEEP, REUSED_BUFFER), strict=True):
        assert line.startswith(f"* **Several nodes, {readers}** (2 nodes, 10 Gbit/s, 448 MiB per")
    assert gpus.startswith("* **GPUs:** not measured.")


def fail_one_run(path):
    """Add a failed run to the three ok ones of a record."""
    record = files.load(path)
    record.runs.append(make_run([], status="failed", reason="policy died"))
    write_record(path, record)


@pytest.mark.study("chatlearn")
def test_the_answers_name_the_failed_runs_of_copies_and_views_with_the_boots(tmp_path):
    view = {"readers_own_a_copy": False}
    for boot in ("a", "b", "c"):
        environment = {"clock_code": "a", "boot": boot, "versions": VERSIONS}
        copies = {"store driver-queue": 2.0, "graph shm": 0.25, "store refs": 1.0}
        times = [(name, {}, seconds, THREE_GIB) for name, seconds in copies.items()]
        write_campaign(
            tmp_path / boot, *times, ("graph zero-copy", {}, 0.05, view), environment=environment
        )
    fail_one_run(tmp_path / "a" / "2.json")
    fail_one_run(tmp_path / "b" / "3.json")
    sentence, table, others = build_pages(campaigns=tmp_path)["answers"].split("\n\n")
    assert "(by the means, one number per machine), the peak memory" in sentence
    assert sentence.endswith("together, and how many of its runs failed.")
    assert table.splitlines()[2:] == [
        "| `graph shm` | 8, 8, 8 | 3 | - |",
        "| `store refs` | 2, 2, 2 | 3 | 1 of 10 |",
        "| `store driver-queue` | 1 | 3 | - |",
    ]
    assert "`graph zero-copy` takes 50, 50, 50 ms (failed runs: 1 of 10). No reader" in others


@pytest.mark.study("chatlearn")
def test_the_answers_say_of_how_many_machines_a_time_is_if_others_are_of_more(tmp_path):
    view = {"readers_own_a_copy": False}
    times = [("store driver-queue", {}, 2.0), ("graph shm", {}, 0.25)]
    times.append(("graph zero-copy", {}, 0.05, view))
    kept = ("graph nixl-read", {"keep": True}, 0.13)
    reused = ("graph nixl-read", {}, 0.12)
    for boot, others in (("a", []), ("b", [reused]), ("c", [reused, kept])):
        environment = {"clock_code": "a", "boot": boot, "versions": VERSIONS}
        write_campaign(tmp_path / boot, *times, *others, environment=environment)
    text = build_pages(campaigns=tmp_path)["answers"]
    assert "`graph nixl-read --keep` takes 130 ms (one machine). The times have" in text
    assert "`graph nixl-read` takes 120, 120 ms (2 machines). The next" in text
    assert "`graph zero-copy` takes 50, 50, 50 ms. No reader" in text


def test_the_scripts_are_divided_by_the_suite_configuration_by_configuration(tmp_path):
    for side, seconds in (("suite", 1.0), ("scripts", 2.0)):
        for transport in ("refs", "driver-queue"):
            write_record(
                tmp_path / side / f"{transport}.json", make_record(transport, *around(seconds))
            )
    headers = ("configuration: suite → script", "ms per iteration", "times as fast", "verdict")
    rows = [[row[header] for header in headers] for row in rows_of(build_agreement(tmp_path))]
    assert rows == [
        [f"store {name}", "1,000 → 2,000", "0.5", "slower"] for name in ("driver-queue", "refs")
    ]


def test_both_times_of_a_comparison_have_as_many_digits():
    steady, noisy = (
        Result([make_record("refs", *runs)]) for runs in ([[1.234]] * 3, [[1.0], [1.5], [2.0]])
    )
    assert PAIR_COLUMNS[0].cell(Pair(steady, noisy)) == "1,230 → 1,440"
