# SPDX-License-Identifier: Apache-2.0
"""Run the commands of the README as a user does: suites, own flows, sweeps, comparisons, charts."""

import re
import subprocess
import sys
from itertools import product

import pytest
from conftest import KILOBYTES, ROOT, copy_project
from made_records import make_machine

from common.record import save
from dataflow.analysis import stages
from dataflow.analysis.prediction import CHECKED
from dataflow.records import files


@pytest.fixture
def measure_all(run_script):
    """measure_all(*words, output=...) -> what the verb run printed, and its records."""

    def run(*words, output):
        # Other tests run at the same time, so that runs are disturbed, and their times may never settle.
        beside_tests = ("--allow-disturbed", "--warmup", "10")
        finished = run_script("run", *beside_tests, *words, output=output)
        assert finished.code == 0, finished.stdout + finished.stderr
        return finished.stdout, files.load_all([output])

    return run


@pytest.mark.slow
def test_a_question_about_a_flow_of_ones_own_is_answered_with_one_command(tmp_path, measure_all):
    flow = "rollout-1, rollout-2 -> trainer: tokens int64 80kB, logprobs float32 40kB"
    configurations = ("torch memcpy", "torch gloo --in-flight 2 --message packed")
    quoted = 'torch memcpy --flow "a -> b: 64kB"'  # a flag of one configuration, with spaces
    printed, records = measure_all(
        *configurations, quoted, "--flow", flow, "--iterations", "4", output=tmp_path
    )
    assert [record.workload.flow for record in records] == [flow, flow, "a -> b: 64kB"]
    for text in ("3 of 3", "x memcpy", "overhead", "ms per iteration"):
        assert text in printed
    assert re.search(
        r"^torch gloo .*ms, torch memcpy: .*ms\. One run each.*: no verdict", printed, re.MULTILINE
    )
    assert (tmp_path / "configurations.svg").exists()


@pytest.mark.slow
def test_predictions_are_checked_by_runs_of_three_configurations(tmp_path, run_script):
    machine = tmp_path / "machine.json"
    save(machine, make_machine())
    flags = ("--iteration-bytes", "4MiB", "--iterations", "3", "--warmup", "2", "--allow-disturbed")
    finished = run_script("predict", "--check", "--machine", str(machine), *flags)
    records = files.load_all([finished.output])
    assert {record.configuration.name for record in records} == {*CHECKED}
    held = re.search(r"measured mean for (\d) of 3 configurations", finished.stdout)
    assert held, finished.stdout + finished.stderr
    assert finished.code == (0 if held[1] == "3" else 1)  # this machine is not the made one
    assert "not measured" not in finished.stdout


@pytest.mark.slow
def test_a_trace_is_a_file_for_perfetto_and_tables_of_stages(tmp_path, measure_all):
    flags = (*KILOBYTES, "--iterations", "8", "--trace")
    printed, (record,) = measure_all("torch gloo", *flags, output=tmp_path / "record.json")
    (run,) = record.runs
    seen = {(process, number) for process, _, _, number, *_ in run.spans}
    assert seen == set(product(("driver", "policy", "reference", "reward"), range(8)))
    assert (tmp_path / "record.trace").exists()
    # On a busy machine, less of an iteration is explained, and the tables are replaced by a warning that says so.
    explained = stages.attribute(run)[1]
    assert explained == pytest.approx(1, abs=0.3)
    is_shown = abs(1 - explained) <= stages.MAX_UNEXPLAINED
    assert ("Milliseconds by stage: online DPO" in printed) == is_shown
    assert (f"warning: torch gloo: the stages add up to {explained:.1%} of" in printed) != is_shown
    assert printed.splitlines()[-1].startswith("Execution time: ")


@pytest.mark.long
def test_a_configuration_is_paired_with_the_same_one_in_another_checkout(tmp_path, measure_all):
    slow_sender = """
make_at_once = Endpoint.make_payload

def make_slowly(self, *arguments):
    time.sleep(0.002)
    return make_at_once(self, *arguments)

Endpoint.make_payload = make_slowly
"""
    old = copy_project(tmp_path / "old", ("dataflow/endpoints/actor.py", slow_sender))
    flags = (
        "--against",
        str(old),
        "--runs",
        "3",
        "--iteration-bytes",
        "64KiB",
        "--iterations",
        "20",
    )
    printed, _ = measure_all("torch memcpy", *flags, output=tmp_path / "out")
    assert sorted(path.parent.name for path in (tmp_path / "out").rglob("*.json")) == ["new", "old"]
    assert any("torch memcpy" in line and "faster" in line for line in printed.splitlines())


NO_PACKAGES = "import runpy, sys; sys.path.insert(0, {root!r}); sys.argv[1:] = ['list']; "
# This Python says that it is 3.10, and has no datetime.UTC as 3.10; a module that imports it first would fail.
OLD = "import datetime, sys; del datetime.UTC; sys.version_info, sys.version = (3, 10, 13), '3.10.13 (main)'; "
MODULE = "runpy.run_module('dataflow', run_name='__main__', alter_sys=True)"
SCRIPTS = [f"runpy.run_path('{name}', run_name='__main__')"
           for name in ("simulate_chat_learn_data_flow.py", "plot_results.py")]  # fmt: skip


@pytest.mark.parametrize(("code", "expected"), [
    (MODULE, "msgspec is not installed"),
    *((OLD + start, "Python 3.11 or newer is needed: this is 3.10.13") for start in (MODULE, *SCRIPTS)),
])  # fmt: skip
def test_a_missing_package_and_an_older_python_are_told_in_one_line(code, expected):
    command = [sys.executable, "-E", "-s", "-S", "-c", NO_PACKAGES.format(root=str(ROOT)) + code]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=60
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and expected in done.stderr, (
        done.stderr
    )


@pytest.mark.slow
def test_a_flow_in_a_file_is_measured_in_two_processes_and_drawn_without_the_file(
    run_script, tmp_path
):
    path = tmp_path / "mine.py"
    path.write_text("from dataflow.flows.catalogue import chain as mine")
    flags = ("--flow", f"{path}:mine", "--actors", "2", "--iterations", "9", "--runs", "2")
    finished = run_script("torch", *flags)
    record = finished.record
    assert (finished.code, finished.stderr) == (0, "")
    assert (record.workload.flow, record.arguments["iterations"]) == ("mine.py:mine", 9)
    assert [(run.order, run.status, len(run.seconds)) for run in record.runs] == [
        (0, "ok", 9),
        (1, "ok", 9),
    ]
    path.unlink()
    assert run_script("report", str(finished.output), output=tmp_path).code == 0
