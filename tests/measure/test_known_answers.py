"""Make one edge slower by a known time, and find it in the published table: clock, record, result, section and page."""

import re
import time
from statistics import median

import pytest
import torch
from conftest import KILOBYTES
from made_records import ENVIRONMENT

import dataflow.transports.processes as script
from dataflow.analysis.result import group_results
from dataflow.endpoints import fault_injection
from dataflow.measure.loop import Measurement
from dataflow.measure.monitor import DriverReport, Monitor
from dataflow.records import files
from dataflow.records.schema import Run
from dataflow.report.render import rewrite_pages
from dataflow.report.sections import sections
from dataflow.workers.worker_group import WorkerGroup

MARKS = "<!-- results: written by make publish -->\n<!-- end of results -->\n"
ITERATIONS = ("--warmup", "1", "--iterations", "12", "--inject")


@pytest.fixture
def publish(make_plan, monkeypatch, tmp_path):
    """publish(slow_down, *flags) -> the cells by header after an edge was slowed down by this function."""
    pages = iter(range(100))

    def run(slow_down, *flags):
        folder = tmp_path / str(next(pages))
        folder.mkdir()
        threads = ("--threads", str(torch.get_num_threads()))
        common = ("--transport", "memcpy", "--allow-disturbed", *threads, *KILOBYTES, *ITERATIONS, "policy:2:slow")
        plan = make_plan("torch", *common, *flags, run_folder=folder)
        record = plan.new_record()
        record.environments["0"] = ENVIRONMENT
        record.runs.append(Run(memcpy_before_seconds=[0.001]))
        monitor = Monitor(plan, record)
        with monkeypatch.context() as patch:
            patch.setattr(fault_injection, "_break", lambda kind: slow_down())
            workers = WorkerGroup(plan)
            Measurement(plan, workers, script.by_memcpy(workers), DriverReport(record.runs[-1])).measure()
        monitor.collect_samples()
        files.save(folder / "record.json", record)
        (folder / "README.md").write_text(MARKS)
        rewrite_pages(folder, sections(group_results([files.load(folder / "record.json")])))
        lines = (folder / "README.md").read_text().splitlines()
        headers, _, cells = [line.split(" | ") for line in lines if "|" in line]
        return dict(zip(headers, cells, strict=True))

    return run


def milliseconds(cells):
    return float(cells["ms per iteration"].replace(",", ""))


@pytest.mark.parametrize("flags", [(), ("--check-every", "4")], ids=["check-every-1", "check-every-4"])
def test_five_milliseconds_on_one_edge_are_five_milliseconds_in_the_published_cell(publish, flags):
    slept = []  # a busy machine ends a sleep late

    def sleep():
        begin = time.perf_counter()
        time.sleep(0.005)
        slept.append(1e3 * (time.perf_counter() - begin))

    before = publish(lambda: None, *flags)
    typical = milliseconds(publish(sleep, *flags))
    assert re.fullmatch(r"\| torch memcpy.*reference.*", next(iter(before.values())))
    moved = typical - milliseconds(before)
    assert 0.7 * median(slept) < moved < 1.6 * median(slept)  # 0 if the clock does not run, 2 if it counts twice
    assert typical > 5


def test_another_copy_of_64_mib_takes_as_long_in_the_published_cell_as_alone(publish):
    source, target = (torch.ones(2**26, dtype=torch.uint8) for _ in range(2))
    alone = []

    def copy_alone():
        for _ in range(8):
            begin = time.perf_counter()
            target.copy_(source)
            alone.append(1e3 * (time.perf_counter() - begin))

    copy_alone()
    before = milliseconds(publish(lambda: None))
    after = milliseconds(publish(lambda: target.copy_(source)))
    copy_alone()
    assert 0.4 < (after - before) / median(alone) < 2.5
