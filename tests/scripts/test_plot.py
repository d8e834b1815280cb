"""Test the chart of records, as its user calls it."""

import os
import runpy
import shutil
import sys

import pytest
from conftest import ROOT
from made_records import make_record, make_run, write_record


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
        "queue.json", "driver-queue", [2.0, 4.0, 3.0], [12.0]
    )  # the geometric mean of the medians 3 and 12 is 6
    write("graph.json", "shm", [0.5], runtime="graph")
    assert plot(tmp_path) == [
        "store driver-queue: 600 s for 100 iterations",
        "graph shm: 50 s for 100 iterations",
        "store driver-queue takes 12.00 times as long as graph shm",
        str(tmp_path / "benchmark_result.svg"),
    ]
    write("queue-2.json", "numpy", [2.0])  # readers get views, which are not compared with copies
    (tmp_path / "queue.json").unlink()
    assert not any("times as long" in line for line in plot(tmp_path))


def test_failed_runs_other_messages_and_a_seventh_configuration_are_left_out(plot, write, tmp_path):
    for index, transport in enumerate(("driver-queue", "ref-queue", "refs", "numpy", "bytes")):
        write(f"{transport}.json", transport, [1.0 + index])
    write("slow.json", "refs", [9.0], flags={"zero_copy": True})
    write("fast.json", "refs", [0.1], flags={"retain_memory": True})
    write("failed.json", "by-value", make_run([], status="failed", reason="policy died"))
    write(
        "old.json",
        "ref-queue",
        make_run([5.0], started_at="2020-01-01T00:00:00+00:00"),
        batch_size=4,
    )
    lines = plot(tmp_path)
    assert [line.partition(":")[0] for line in lines[:-1]] == [
        "store refs --zero-copy", "store bytes", "store numpy", "store refs", "store ref-queue", "store driver-queue",
    ]  # fmt: skip


def test_the_newest_records_are_drawn_beside_themselves(plot, write, tmp_path):
    shutil.copy(ROOT / "plot_results.py", tmp_path)
    write("results/one.json", "refs", [1.0])
    (tmp_path / "results" / "claimed.json").touch()  # of a script that still runs
    assert plot(root=tmp_path)[-1] == str(tmp_path / "results" / "benchmark_result.svg")
    write("results/run-1/two.json", "numpy", [1.0])
    assert plot(root=tmp_path) == [
        "store numpy: 100 s for 100 iterations",
        str(tmp_path / "results" / "run-1" / "benchmark_result.svg"),
    ]
    write("results/run-2/three.json", "bytes", [1.0])
    os.utime(
        tmp_path / "results" / "run-1", (2**31, 2**31)
    )  # a chart was added, which does not make it the newest
    assert plot(root=tmp_path)[-1] == str(tmp_path / "results" / "run-2" / "benchmark_result.svg")


def test_the_published_chart_equals_what_the_published_records_give(plot, tmp_path):
    """It has the lines of the demo, because the sizes are the demo's."""
    for name in ("results/campaigns", "img"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "plot_results.py", tmp_path)
    (tmp_path / "img" / "benchmark_result.svg").unlink()
    assert plot(root=tmp_path)[-1] == str(tmp_path / "img" / "benchmark_result.svg")
    drawn, published = (folder / "img" / "benchmark_result.svg" for folder in (tmp_path, ROOT))
    assert drawn.read_text() == published.read_text()
    assert "demo, queues: 279.23 s" in published.read_text()


@pytest.mark.parametrize("content", [None, "{}"])
def test_no_record_is_one_line(plot, tmp_path, content):
    if content:
        (tmp_path / "record.json").write_text(content)
    with pytest.raises(SystemExit, match=r"^error: "):
        plot(tmp_path)
