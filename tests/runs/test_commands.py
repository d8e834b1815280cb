"""Run the commands of the README as a user does: suites, own flows, sweeps, comparisons, charts."""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from conftest import KILOBYTES, ROOT, copy_project

from dataflow.analysis import stages
from dataflow.records import files

# Tests that look for files that their run has left ignore those below such a folder of another process.
TEMPORARY = Path(f"/tmp/t-{os.getpid()}/tmp")


@pytest.fixture(scope="module", autouse=True)
def temporary():
    TEMPORARY.mkdir(parents=True)
    yield
    shutil.rmtree(TEMPORARY.parent)


def run_command(verb, *words, cwd=ROOT, code=0, timeout=240):
    command = ["-m", "dataflow", verb, *words]
    if verb == "run":
        command.append("--allow-disturbed")  # other tests run at the same time
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=os.environ | {"TMPDIR": str(TEMPORARY)},
        capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def load_records(folder):
    return files.load_all([folder])


def test_new_records_are_drawn_in_one_chart_and_rejected_or_skipped_configurations_leave_none(tmp_path):
    """The chart is that of a report without arguments."""
    project = copy_project(tmp_path)
    for words in (["rdt nccl"], ["rdt gloo", "--address", "127.0.0.1:1"], ["rdt gloo", "--iterations", "0"]):
        done = run_command("run", *words, cwd=project, code=2)
        assert done.stderr.count("\n") == 1, done.stderr
    assert not list(project.rglob("*.json"))
    for transport in ("gloo", "memcpy"):
        run_command("run", f"torch {transport}", "--iterations", "3", *KILOBYTES, cwd=project)
    assert len(list((project / "results").glob("*.json"))) == 2
    done = run_command("report", cwd=project)
    assert "torch gloo" in done.stdout and "torch memcpy" in done.stdout
    assert ".svg" in done.stdout and [*(project / "results").rglob("transports.svg")]


def test_a_question_about_a_flow_of_ones_own_is_answered_with_one_command(tmp_path):
    flow = "rollout-1, rollout-2 -> trainer: tokens int64 80kB, logprobs float32 40kB"
    configurations = ("torch memcpy", "torch gloo --in-flight 2 --message packed")
    quoted = 'torch memcpy --flow "a -> b: 64kB"'  # a flag of one configuration, with spaces
    flags = ("--flow", flow, "--iterations", "4", "--output", tmp_path)
    done = run_command("run", *configurations, quoted, *flags)
    assert [record.workload.flow for record in load_records(tmp_path)] == [flow, flow, "a -> b: 64kB"]
    assert "3 of 3" in done.stdout
    for column in ("x memcpy", "overhead", "ms per iteration"):
        assert column in done.stdout
    assert re.search(r"^torch gloo .* times as .* torch memcpy \(no interval: ", done.stdout, re.MULTILINE)
    assert (tmp_path / "transports.svg").exists()


def test_a_sweep_writes_a_record_per_point_and_skips_a_point_that_does_not_fit(tmp_path):
    folder = tmp_path / "sweep"
    sweep = "iteration-bytes=4KiB,1MiB,100TB"
    flags = ("--sweep", sweep, "--iterations", "5", "--warmup", "1", "--output", folder)
    done = run_command("run", "torch memcpy", *flags)
    records = sorted(load_records(folder), key=lambda record: record.workload.sizes["iteration_bytes"])
    assert [record.workload.sizes["iteration_bytes"] for record in records] == [2**12, 2**20, 10**14]
    assert {record.table for record in records} == {"sweep-iteration-bytes"}
    *measured, too_large = [record.runs[0] for record in records]
    assert all(run.status == "ok" and len(run.seconds) == 5 and run.memcpy_before_seconds for run in measured)
    assert (too_large.status, too_large.seconds) == ("skipped", []) and "memcpy needs" in too_large.reason
    assert "2 of 2" in done.stdout
    assert (folder / "sweep_iteration_bytes.svg").exists()


def test_a_trace_is_a_file_for_perfetto_and_tables_of_stages(tmp_path):
    flags = (*KILOBYTES, "--iterations", "8", "--output", tmp_path / "record.json")
    done = run_command("run", "torch gloo", *flags, "--trace")
    (run,) = files.load(tmp_path / "record.json").runs
    seen = {(process, number) for process, _, _, number, *_ in run.spans}
    assert seen == set(product(("driver", "policy", "reference", "reward"), range(8)))
    events = json.loads((tmp_path / "record.trace").read_text())["traceEvents"]
    assert len([event for event in events if event["ph"] == "X"]) >= len(run.spans)
    # On a busy machine, less of an iteration is explained, and the tables are replaced by a warning that says so.
    explained = stages.attribute(run)[1]
    assert explained == pytest.approx(1, abs=0.3)
    is_shown = abs(1 - explained) <= stages.MAX_UNEXPLAINED
    assert ("Milliseconds by stage: online DPO" in done.stdout) == is_shown
    assert (f"warning: torch gloo: the stages add up to {explained:.1%} of" in done.stdout) != is_shown
    assert done.stdout.splitlines()[-1].startswith("Execution time: ")


@pytest.mark.long
def test_a_configuration_is_paired_with_the_same_one_in_another_checkout(tmp_path):
    line = "        slot = outbox.write_number(number)\n"  # of make_payload
    old = copy_project(tmp_path / "old", ("dataflow/endpoints/actor.py", line, f"        time.sleep(0.002)\n{line}"))
    flags = ("--against", old, "--runs", "3", "--iteration-bytes", "64KiB", "--iterations", "20")
    done = run_command("run", "torch memcpy", *flags, "--output", tmp_path / "out")
    assert sorted(path.parent.name for path in (tmp_path / "out").rglob("*.json")) == ["new", "old"]
    assert any("torch memcpy" in line and "faster" in line for line in done.stdout.splitlines())


@pytest.mark.parametrize("start", ["runpy.run_module('dataflow', run_name='__main__', alter_sys=True)",
                                   "runpy.run_path('simulate_chat_learn_data_flow.py', run_name='__main__')",
                                   "runpy.run_path('plot_results.py', run_name='__main__')"])  # fmt: skip
def test_an_older_python_is_told_which_one_is_needed(start):
    """This Python says that it is 3.10, and has no datetime.UTC as 3.10; a module that imports it first would fail."""
    code = (
        "import datetime, runpy, sys\ndel datetime.UTC\nsys.version_info, sys.version = (3, 10, 13), '3.10.13 (main)'\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n{start}"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "error: Python 3.11 or newer is needed: this is 3.10.13\n")


def test_a_missing_package_is_named_with_the_way_to_install_it():
    command = [sys.executable, "-E", "-s", "-S", "-m", "dataflow", "list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "is not installed: run make, or pip install -r requirements.txt" in done.stderr


def test_a_flow_in_a_file_is_measured_in_two_processes_and_drawn_without_the_file(run_script, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataflow.flows.flow import DRIVER, Flow, Task\n"
        "from dataflow.flows.message import Field, Message\n\n\n"
        "def mine(batch_size: int = 4):\n"
        "    message = Message((Field('tokens', 'int64', (batch_size, 8)),))\n"
        "    tasks = (Task('policy', (DRIVER,), message), Task('reward', ('policy',), message))\n"
        "    return Flow('mine', 'mine', message, tasks, returns=('reward',))\n"
    )
    flags = ("--flow", f"{path}:mine", "--batch-size", "6", "--iterations", "9", "--runs", "2")
    finished = run_script("torch", *flags)
    record = finished.record
    assert (finished.code, finished.stderr) == (0, "")
    assert (record.workload.flow, record.arguments["iterations"]) == ("mine.py:mine", 9)
    assert [(run.order, run.status) for run in record.runs] == [(0, "ok"), (1, "ok")]
    assert all(len(run.seconds) == 9 for run in record.runs)
    path.unlink()
    run_command("report", finished.output, "--output", tmp_path)
