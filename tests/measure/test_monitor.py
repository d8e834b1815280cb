"""Test what the monitor finds out about a run from its report, its progress table and its processes."""

import os
import shutil
import signal
import subprocess
import sys
from threading import Event
from types import SimpleNamespace

import psutil
import pytest
from conftest import KILOBYTES

from dataflow.endpoints.progress_table import ITERATING, ProgressTable
from dataflow.measure import monitor
from dataflow.measure.driver_report import DriverReport
from dataflow.measure.monitor import Monitor
from dataflow.records.schema import Run

NAMES = ("driver", "policy", "reference", "reward")
SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def plan(make_plan, tmp_path):
    return make_plan("torch", "--transport", "gloo", *KILOBYTES, "--iterations", "6", run_folder=tmp_path)


@pytest.fixture
def start():
    """start(code) -> a process that executes this Python code, with the attributes of a started RunFolder."""
    workers = []

    def start_driver(code):
        process = subprocess.Popen([sys.executable, "-c", code])
        handle = os.pidfd_open(process.pid)
        workers.append(SimpleNamespace(process=process, pid=process.pid, poll_handle=handle, returncode=process.wait))
        return workers[-1]

    yield start_driver
    for worker in workers:
        worker.process.kill()
        worker.process.wait()
        os.close(worker.poll_handle)


@pytest.fixture
def make_monitor(plan, monkeypatch):
    """make_monitor() -> a monitor with a new record."""
    monkeypatch.setattr(monitor, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(monitor, "POLL_SECONDS", 0.05)

    def make(**arguments):
        (plan.run_folder / "progress").unlink(missing_ok=True)
        record = plan.new_record()
        record.runs.append(Run(order=7))
        return Monitor(plan, record, **arguments)

    return make


def write_report(plan, **fields):
    """Return the code of a worker that writes this report and ends."""
    DriverReport(Run(order=7, **fields.pop("run", {})), **fields).write(plan.run_folder)
    return write_content(plan, (plan.run_folder / "report").read_bytes())


def write_content(plan, content):
    """Return the code of a worker that replaces the report in one step, because the monitor may read it meanwhile."""
    path = str(plan.run_folder / "report")
    return f"import os; open({path + '2'!r}, 'wb').write({content!r}); os.replace({path + '2'!r}, {path!r})"


def set_progress(plan, **received):
    for name, number in received.items():
        ProgressTable.join(plan.run_folder, name, NAMES, plan.total_iterations).received(number)


@pytest.mark.parametrize(
    ("received", "reason"),
    [
        ((4, 4, 4), "policy is stuck after iteration 4"),
        ((5, 4, 4), "reference is stuck after iteration 4"),
        ((5, 5, 4), "reward is stuck after iteration 4"),
        ((5, 5, 5), "all actors received their messages, but the result did not reach the driver"),
    ],
)
def test_first_actor_without_the_message_is_named(plan, make_monitor, received, reason):
    made = make_monitor()
    made.progress.began(5)
    made.progress.ended(4, 0, 1)
    set_progress(plan, **dict(zip(NAMES[1:], received, strict=True)))
    assert made.diagnose([]) == reason


def test_dead_and_stopped_actors_are_named_before_late_ones(make_monitor, start):
    made, sleeper = make_monitor(), start(SLEEP)
    assert made.diagnose(["reference"]) == "reference died"
    assert made.diagnose(["policy", "reward"]).startswith("policy, reward died (")
    made.progress.integers[3 + 2 * NAMES.index("reward")] = sleeper.pid
    sleeper.process.send_signal(signal.SIGSTOP)
    while psutil.Process(sleeper.pid).status() != psutil.STATUS_STOPPED:
        pass
    assert made.diagnose([]) == "reward does not answer: its process is stopped"


@pytest.mark.parametrize(("warmup", "timed"), [(3, 3), (None, 0)], ids=["ended", "interrupted in the warm-up"])
def test_report_and_times_are_in_the_record_at_the_end(plan, make_monitor, start, warmup, timed):
    made = make_monitor()
    table = ProgressTable.join(plan.run_folder, "driver", NAMES, plan.total_iterations)
    for number in range(1, 8):  # the last 3 of 10 are missing
        table.ended(number, number, number + 0.25)
    run = {"nodes": {"driver": 0}, "stored_bytes": 5, "warmup_iterations": warmup}
    assert made.wait(start(write_report(plan, run=run, environment={"python": "3"}, finished=True))) is None
    made.collect_samples()
    (run,) = made.record.runs
    assert (run.stored_bytes, run.order) == (5, 7)
    assert made.record.environments == {"0": {"python": "3"}}
    assert (run.first_seconds, run.seconds, run.group_seconds) == (0.25, [0.25] * timed, [0.25] * timed)
    assert run.warmup_seconds == [0.25] * (6 - timed)


@pytest.mark.parametrize("content", [b"\xff\x00{garbage\n", b'{"run": {"secnods": []}}', b'{"run": {"order": "one"}}'])
def test_invalid_report_fails_the_run(plan, make_monitor, start, content):
    problem = make_monitor().wait(start(write_content(plan, content)))
    assert problem.startswith("the driver's process wrote an invalid report (")


@pytest.mark.parametrize(("nodes", "problem"), [({"driver": 0}, None), ({}, "policy died")])
def test_end_of_an_actor_is_a_failure_only_before_the_nodes_are_reported(plan, make_monitor, start, nodes, problem):
    """The actor ends between two looks of the monitor, directly after the worker has written its report."""

    def find_exited_actors(worker):
        DriverReport(Run(nodes=nodes), finished=True).write(plan.run_folder)
        return ["policy"]

    made = make_monitor()
    made._find_exited_actors = find_exited_actors
    assert made.wait(start("import time; time.sleep(0.6)")) == problem


@pytest.mark.parametrize(("actor_raised", "problem"), [(True, "policy: a reason"), (False, "reference died")])
def test_an_actor_that_ends_after_the_error_of_another_one_is_not_the_cause(
    plan, make_monitor, start, actor_raised, problem
):
    made = make_monitor()
    made._find_exited_actors = lambda worker: ["reference"]
    assert made.wait(start(write_report(plan, failure="policy: a reason", actor_raised=actor_raised))) == problem


@pytest.mark.parametrize(("code", "problem"), [("import time; time.sleep(5)", "the GCS ended"), ("", "exit code 0")])
def test_the_end_of_the_gcs_is_named_unless_the_driver_has_ended_too(plan, make_monitor, start, code, problem):
    (plan.run_folder / "gcs").write_text(f"{2**22 + 1}\n")  # above the largest process id
    driver = start(code)
    if not code:
        os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)
    assert problem in make_monitor().wait(driver)


def test_ended_processes_are_found_except_those_of_the_driver(make_monitor, start):
    driver, sleeper, dead = start(SLEEP), start(SLEEP), start("")
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    made = make_monitor()
    for name, worker in zip(NAMES, (driver, sleeper, dead, driver), strict=True):
        made.progress.integers[3 + 2 * NAMES.index(name)] = worker.pid
    driver.process.kill()
    driver.process.wait()
    assert made._find_exited_actors(driver) == ["reference"]


def test_run_without_progress_times_out(plan, make_monitor, start, monkeypatch):
    monkeypatch.setattr(monitor, "MIN_START_SECONDS", 0.2)
    object.__setattr__(plan.options, "timeout", 0.1)
    made = make_monitor()
    assert made.wait(start(SLEEP)) == "startup timed out after 0.2 s"
    made.progress.phase = ITERATING
    made.progress.began(1)
    assert made.wait(start(SLEEP)) == "did not end within 0.1 s (--timeout); policy is stuck after iteration 0"


def test_a_run_folder_that_disappears_is_named_and_the_times_are_kept(plan, make_monitor, tmp_path):
    made = make_monitor()
    made.record.runs[-1].warmup_iterations = 3
    made.progress.phase = ITERATING
    made.progress.began(7)
    for number in range(1, 7):
        made.progress.ended(number, number, number + 0.25)
    run_folder = SimpleNamespace(folder=tmp_path, poll_handle=0, start_driver=lambda *_: shutil.rmtree(tmp_path))
    made.follow_driver(run_folder)
    (run,) = made.record.runs
    assert run.reason.startswith(f"iteration 7: {tmp_path / 'report'} has disappeared")
    assert (run.status, run.seconds) == ("failed", [0.25] * 2)


@pytest.mark.parametrize(("bytes_", "limits"), [(-1, ""), (2**29, " (limits of this shell: ulimit -v 524288)")])
def test_limits_of_the_shell_are_named_if_a_process_was_ended(make_monitor, start, monkeypatch, bytes_, limits):
    unlimited = monitor.resource.RLIM_INFINITY
    values = {monitor.resource.RLIMIT_AS: (bytes_, -1), monitor.resource.RLIMIT_CPU: (unlimited, unlimited)}
    monkeypatch.setattr(monitor.resource, "getrlimit", values.get)
    driver = start(SLEEP)
    driver.process.kill()
    driver.process.wait()
    driver.returncode = lambda: -signal.SIGKILL
    assert make_monitor().wait(driver) == f"the driver's process ended with signal SIGKILL{limits}"
    assert make_monitor().diagnose(["policy"]) == f"policy died{limits}"


def test_stop_interrupts_the_run(make_monitor, start):
    stop = Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        make_monitor(stop=stop).wait(start(SLEEP))
