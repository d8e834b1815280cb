# SPDX-License-Identifier: Apache-2.0
"""Test the chart of records, as its user calls it."""

import os
import re
import runpy
import shutil
import sys

import pytest
from conftest import ROOT
from made_records import make_record, make_run, write_record

from dataflow.records import files

NOT_JUDGED = " (not known whether other programs disturbed these runs)"


@pytest.fixture
def plot(monkeypatch, capsys):
    """plot(*words) -> the printed lines of plot_results.py."""

    def run(*words, root=ROOT):
        monkeypatch.setattr(sys, "argv", ["plot_results.py", *map(str, words)])
        runpy.run_path(str(root / "plot_results.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def write(tmp_path):
    return lambda name, *arguments, **changes: write_record(
        tmp_path / name, make_record(*arguments, **changes)
    )


def test_two_scripts_are_compared(plot, write, tmp_path):
    write(
        "queue.json", "driver-queue", [2.0, 4.0, 3.0], [15.0]
    )  # the mean of the four iterations is 6
    write("graph.json", "shm", [0.5], runtime="graph")
    assert plot(tmp_path) == [
        "store driver-queue: 600 s for 100 iterations",
        "graph shm: 50.0 s for 100 iterations",
        "store driver-queue takes 12.0 times as long as graph shm" + NOT_JUDGED,
        str(tmp_path / "benchmark_result.svg"),
    ]


def test_a_row_has_a_faint_dot_per_iteration(plot, write, tmp_path):
    write("queue.json", "driver-queue", [2.0, 4.0, 3.0], [15.0])
    write("graph.json", "shm", [0.5, 0.6], runtime="graph")
    plot(tmp_path)
    chart = (tmp_path / "benchmark_result.svg").read_text()
    dots = re.findall(
        r'<g clip-path="[^"]*" style="[^"]*opacity: 0.35[^"]*">\n((?:<use .*/>\n)+)</g>', chart
    )
    assert [len(group.splitlines()) for group in dots] == [2, 4]
    assert "Bar: mean of the timed iterations, times 100." in chart


def test_a_chart_has_eight_rows_with_those_of_the_scripts_and_names_the_others(
    plot, write, tmp_path
):
    kept = {"retain_memory": True}
    names = ["store driver-queue", "store ref-queue", "store refs", "graph shm", "graph pickle"]
    for number, name in enumerate(names):
        runtime, transport = name.split()
        write(f"{number}.json", transport, [9.0 - number], runtime=runtime)
        write(f"{number}-kept.json", transport, [0.9 - number / 10], runtime=runtime, flags=kept)
    printed = plot(tmp_path)
    assert len([line for line in printed if line.endswith("for 100 iterations")]) == 10
    assert "not drawn, because a chart has 8 rows: store ref-queue, store refs" in printed
    chart = (tmp_path / "benchmark_result.svg").read_text()
    assert "Not drawn: 2 slower configurations (8 have a row)." in chart
    assert "<!-- store driver-queue -->" in chart and "<!-- store ref-queue -->" not in chart


def test_a_ratio_of_runs_that_no_other_program_disturbed_has_no_note(plot, write, tmp_path):
    write("queue.json", "driver-queue", make_run([6.0], other_cores=0.1))
    write("graph.json", "shm", make_run([0.5], other_cores=0.0), runtime="graph")
    assert plot(tmp_path)[2] == "store driver-queue takes 12.0 times as long as graph shm"


def test_each_machine_has_its_own_time_and_ratio(plot, write, tmp_path):
    machines = (
        ("old", {"cpu_model": "Old"}),
        ("new", {"cpu_model": "New", "boot": "7c6c07c29374"}),
    )
    for day, (name, environment) in enumerate(machines, start=1):
        started_at = f"2026-01-0{day}T00:00:00+00:00"
        run = make_run([4.0 / day**3], started_at=started_at, memcpy_before_seconds=[0.25])
        write(f"{name}-queue.json", "driver-queue", run, environment=environment)
        run = make_run([1.0], started_at=started_at)
        write(f"{name}-graph.json", "shm", run, runtime="graph", environment=environment)
    assert plot(tmp_path)[:-1] == [
        "store driver-queue: 400 s for 100 iterations on Old",
        "store driver-queue: 50.0 s for 100 iterations on New, boot 7c6c",
        "graph shm: 100 s for 100 iterations on Old",
        "graph shm: 100 s for 100 iterations on New, boot 7c6c",
        "store driver-queue takes 4.00 times as long as graph shm on Old" + NOT_JUDGED,
        "graph shm takes 2.00 times as long as store driver-queue on New, boot 7c6c" + NOT_JUDGED,
    ]
    chart = (tmp_path / "benchmark_result.svg").read_text()
    assert "Old, 2 CPUs, 8 GiB, one thread copies" in chart and "New, boot 7c6c, 2 CPUs" in chart


def test_only_equal_work_of_the_two_scripts_is_compared(plot, write, tmp_path):
    """Each record but the first two would be another bar."""
    write("refs.json", "refs", [1.0])
    write("kept.json", "refs", [0.4], flags={"retain_memory": True})
    write("other.json", "numpy", [2.0])
    write("view.json", "ref-queue", make_run([0.3], readers_own_a_copy=False))
    write("flag.json", "refs", [9.0], flags={"zero_copy": True})
    write("traced.json", "driver-queue", [9.0], traced=True)
    write("failed.json", "driver-queue", make_run([], status="failed", reason="policy died"))
    old = make_run([5.0], started_at="2020-01-01T00:00:00+00:00")
    write("size.json", "ref-queue", old, batch_size=4)
    nodes = make_record("driver-queue", [7.0])
    nodes.environments["1"] = nodes.environments["0"]
    write_record(tmp_path / "nodes.json", nodes)
    assert plot(tmp_path)[:-1] == [
        "store refs: 100 s for 100 iterations",
        "store refs --retain-memory: 40.0 s for 100 iterations",
        "store refs takes 2.50 times as long as store refs --retain-memory" + NOT_JUDGED,
        "left out: store driver-queue (no run is ok); store refs --zero-copy, "
        "store driver-queue, store numpy (not what both scripts can measure); "
        "store ref-queue (other messages: the flow online-dpo with 1.75 MiB per iteration); "
        "store ref-queue (its readers get a view)",
    ]


def test_runs_that_tables_leave_out_are_left_out_and_counted(plot, write, tmp_path):
    disturbed = make_run([9.0], other_cores=0.5, idle_cores=1.0)
    stolen = make_run([8.0], steal_cores=0.5)
    unsettled = make_run([7.0], settled=False)
    settled = make_run([1.0], other_cores=0.1, settled=True)
    write("refs.json", "refs", disturbed, stolen, unsettled, settled)
    time, left_out, _ = plot(tmp_path)
    assert time == "store refs: 100 s for 100 iterations"
    assert left_out == (
        "left out: store refs (a run was disturbed: other programs used 0.5 cores); "
        "store refs (a run was disturbed: the hypervisor took 0.5 cores); "
        "store refs (a run was not settled)"
    )
    chart = (tmp_path / "benchmark_result.svg").read_text()
    assert "Left out: 3 runs that were disturbed or had not settled." in chart
    write("refs.json", "refs", unsettled)
    with pytest.raises(SystemExit, match="the times of no run had settled after the warm-up: meas"):
        plot(tmp_path)


def test_a_run_that_keeps_memory_counts_although_it_had_not_settled(plot, write, tmp_path):
    unsettled = make_run([7.0], settled=False)
    write("kept.json", "refs", unsettled, flags={"retain_memory": True})
    assert plot(tmp_path)[0] == "store refs --retain-memory: 700 s for 100 iterations"


def test_messages_whose_sizes_change_are_not_drawn_beside_others(plot, write, tmp_path):
    write("refs.json", "refs", [1.0])
    write("changing.json", "driver-queue", [9.0], changing_sizes=0.5)
    time, left_out, _ = plot(tmp_path)
    assert time.startswith("store refs: 100 s")
    assert left_out == "left out: store driver-queue (not what both scripts can measure)"


def test_disturbed_runs_of_a_configuration_that_has_no_others_count_and_are_marked(
    plot, write, tmp_path
):
    disturbed = make_run([6.0], other_cores=0.5, idle_cores=1.0)
    write("queue.json", "driver-queue", disturbed)
    write("graph.json", "shm", make_run([0.5], other_cores=0.0), runtime="graph")
    assert plot(tmp_path)[:-1] == [
        "store driver-queue: 600 s for 100 iterations (disturbed: other programs used 0.5 cores)",
        "graph shm: 50.0 s for 100 iterations",
        "store driver-queue takes 12.0 times as long as graph shm (disturbed, so this can mislead: "
        "measure again on an idle machine)",
    ]
    chart = (tmp_path / "benchmark_result.svg").read_text()
    assert "600 (disturbed)" in chart and "50.0 (disturbed)" not in chart
    assert "Disturbed: other programs or virtual machines used the cores" in chart
    write("quiet.json", "driver-queue", make_run([4.5], other_cores=0.1))
    printed = plot(tmp_path)
    assert printed[0] == "store driver-queue: 450 s for 100 iterations"
    assert printed[2] == "store driver-queue takes 9.00 times as long as graph shm"
    assert printed[3].startswith("left out: store driver-queue (a run was disturbed: other progr")
    assert "(disturbed)" not in (tmp_path / "benchmark_result.svg").read_text()


def test_a_chart_says_that_every_byte_was_verified_only_if_it_was(plot, write, tmp_path):
    write("some.json", "refs", [0.5], flags={"check_every": 10})
    with pytest.raises(SystemExit, match="python3 -m dataflow report shows the others"):
        plot(tmp_path)
    write("all.json", "ref-queue", [1.0])
    assert plot(tmp_path)[0] == "store ref-queue: 100 s for 100 iterations"
    assert "Every byte was verified" in (tmp_path / "benchmark_result.svg").read_text()


def test_a_flow_of_ones_own_has_its_name_and_no_times_of_the_demo(plot, write, tmp_path):
    write("chain.json", "refs", [1.0], flow="chain")
    assert plot(tmp_path)[0] == "the flow chain, which is not that of the two scripts:"
    chart = (tmp_path / "benchmark_result.svg").read_text()
    assert "The flow chain" in chart
    assert "279.23" not in chart and "ChatLearn" not in chart


def test_the_newest_records_are_drawn_beside_themselves(plot, write, tmp_path):
    shutil.copy(ROOT / "plot_results.py", tmp_path)
    write("results/one.json", "refs", [1.0])
    (tmp_path / "results" / "claimed.json").touch()  # of a script that still runs
    assert plot(root=tmp_path)[-1] == str(tmp_path / "results" / "benchmark_result.svg")
    write("results/run-1/two.json", "ref-queue", [1.0])
    assert plot(root=tmp_path) == [
        "store ref-queue: 100 s for 100 iterations",
        str(tmp_path / "results" / "run-1" / "benchmark_result.svg"),
    ]
    write("results/run-2/three.json", "driver-queue", [1.0])
    os.utime(
        tmp_path / "results" / "run-1", (2**31, 2**31)
    )  # a chart was added, which does not make it the newest
    assert plot(root=tmp_path)[-1] == str(tmp_path / "results" / "run-2" / "benchmark_result.svg")


def test_other_json_files_in_a_folder_of_records_are_passed_over(plot, write, tmp_path):
    write("one.json", "refs", [1.0])
    (tmp_path / "evidence").mkdir()
    ages = ROOT / "results" / "evidence" / "code-ages.json"
    shutil.copy(ages, tmp_path / "evidence")
    assert plot(tmp_path)[0] == "store refs: 100 s for 100 iterations"
    with pytest.raises(SystemExit, match="evidence has no records"):
        plot(tmp_path / "evidence")


def test_an_archive_is_drawn_as_its_single_records_are(plot, write, tmp_path):
    shutil.copy(ROOT / "plot_results.py", tmp_path)
    write("results/run-1/one.json", "refs", [1.0])
    write("results/run-1/two.json", "ref-queue", [2.0])
    folder = tmp_path / "results" / "run-1"
    single = plot(folder)
    chart = (folder / "benchmark_result.svg").read_text()
    archive = files.archive(folder)
    for words in ((folder,), (archive,), ()):  # without words, it is the newest one
        (folder / "benchmark_result.svg").unlink()
        assert plot(*words, root=tmp_path) == single
        assert (folder / "benchmark_result.svg").read_text() == chart
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(SystemExit, match=r"records\.jsonl\.gz cannot be read as a record \(Comp"):
        plot(folder)


def test_a_profile_is_not_taken_for_the_newest_records(plot, write, tmp_path):
    shutil.copy(ROOT / "plot_results.py", tmp_path)
    write("results/run-1/one.json", "refs", [1.0])
    profile = tmp_path / "results" / "run-profile-20261126T203046"
    profile.mkdir()
    (profile / "profile.json").write_text('{"steps": 20}')
    os.utime(profile / "profile.json", (2**31, 2**31))
    assert plot(root=tmp_path)[-1] == str(tmp_path / "results" / "run-1" / "benchmark_result.svg")


def test_the_published_chart_equals_what_the_published_records_give(plot, tmp_path):
    """Its caption has the times of the demo, because the sizes are the demo's."""
    for name in ("results/campaigns", "img"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "plot_results.py", tmp_path)
    (tmp_path / "img" / "benchmark_result.svg").unlink()
    assert plot(root=tmp_path)[-1] == str(tmp_path / "img" / "benchmark_result.svg")
    drawn, published = (folder / "img" / "benchmark_result.svg" for folder in (tmp_path, ROOT))
    assert drawn.read_text() == published.read_text()
    assert "The demo RayCG-ChatLearn reports 279.23 s" in published.read_text()


@pytest.mark.parametrize(("name", "message"), [
    ("typo.json", "typo.json does not exist: give a record, or a folder of records"),
    ("notes.md", "notes.md cannot be read as a record (JSON is malformed"),
    ("broken.json", "broken.json cannot be read as a record (Object missing required field"),
    ("empty", "empty has no records (*.json, records.jsonl.gz): give a record, or a folder of them"),
])  # fmt: skip
def test_what_is_no_record_is_one_line(plot, tmp_path, name, message):
    (tmp_path / "notes.md").write_text("# Notes")
    (tmp_path / "broken.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as end:
        plot(tmp_path / name)
    assert str(end.value).startswith(f"error: {tmp_path}/{message}")
    assert "\n" not in str(end.value)


def test_without_any_records_it_says_what_to_run(plot, tmp_path):
    shutil.copy(ROOT / "plot_results.py", tmp_path)
    with pytest.raises(SystemExit, match="no records in results/: run one of the two scripts"):
        plot(root=tmp_path)


def test_a_newer_record_of_another_flow_in_a_campaign_does_not_change_the_chart(
    plot, write, tmp_path
):
    shutil.copy(ROOT / "plot_results.py", tmp_path)
    newer = make_run([9.0], started_at="2026-01-02T00:00:00")
    write("results/campaigns/one/refs.json", "refs", [1.0])
    write("results/campaigns/one/chain.json", "refs", newer, flow="chain")
    (tmp_path / "img").mkdir()
    campaigns = tmp_path / "results" / "campaigns"
    assert plot(campaigns, root=tmp_path)[:-1] == [
        "store refs: 100 s for 100 iterations",
        "left out: store refs (another flow than that of the two scripts, online-dpo)",
    ]
