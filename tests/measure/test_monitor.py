# SPDX-License-Identifier: Apache-2.0
"""Test what the monitor finds out about a run from its report, its progress table and its processes."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from conftest import KILOBYTES

from dataflow.endpoints import progress_table
from dataflow.endpoints.progress_table import ENDING, ITERATING, ProgressTable, own_place
from dataflow.errors import RunFailed
from dataflow.measure import driver, monitor
from dataflow.measure.driver_report import DriverReport
from dataflow.measure.monitor import Monitor, time_groups
from dataflow.records.schema import Run

NAMES = ("driver", "policy", "reference", "reward")


@pytest.fixture
def plan(make_plan, tmp_path):
    return make_plan(
        "torch", "--transport", "gloo", *KILOBYTES, "--iterations", "6", run_folder=tmp_path
    )


def make_driver(code=None):
    """Return a started RunFolder whose driver process has ended with this code; None: it runs."""
    return SimpleNamespace(
        pid=os.getpid(), poll_handle=os.eventfd(int(code is not None)), returncode=lambda: code
    )


@pytest.fixture
def made(plan, monkeypatch):
    """Return a monitor with a new record."""
    monkeypatch.setattr(monitor, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(monitor, "POLL_SECONDS", 0.05)
    record = plan.new_record()
    record.runs.append(Run(order=7))
    return Monitor(plan, record)


@pytest.fixture
def sleeper():
    """Return a process that sleeps."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(("received", "reason"), [
    ((4, 4, 4), "policy is stuck after iteration 4"), ((5, 4, 4), "reference is stuck after iteration 4"),
    ((5, 5, 4), "reward is stuck after iteration 4"),
    ((5, 5, 5), "all actors received their messages, but the result did not reach the driver"),
])  # fmt: skip
def test_first_actor_without_the_message_is_named_unless_one_is_dead_or_stopped(
    plan, made, sleeper, received, reason
):
    made.progress.began(5)
    made.progress.ended(4, 0, 1)
    for name, number in zip(NAMES[1:], received, strict=True):
        ProgressTable(plan.run_folder, NAMES, plan.total_iterations, name).received(number)
    assert made.diagnose([]) == reason
    assert made.diagnose(["reference"]) == "reference died"
    assert made.diagnose(["policy", "reward"]).startswith("policy, reward died (")
    made.progress.add_process("reward", sleeper.pid, own_place())
    sleeper.send_signal(signal.SIGSTOP)
    while psutil.Process(sleeper.pid).status() != psutil.STATUS_STOPPED:
        pass
    assert made.diagnose([]) == "reward does not answer: its process is stopped"


@pytest.mark.parametrize(
    ("warmup", "timed"), [(3, 3), (None, 0)], ids=["ended", "interrupted in the warm-up"]
)
def test_report_and_times_are_in_the_record_at_the_end(plan, made, warmup, timed):
    table = ProgressTable(plan.run_folder, NAMES, plan.total_iterations, "driver")
    for number in range(1, 8):  # the last 3 of 10 are missing
        table.ended(number, number, number + 0.25)
    run = Run(order=7, nodes={"driver": 0}, stored_bytes=5, warmup_iterations=warmup)
    DriverReport(run, environments=[{"python": "3"}], finished=True).write(plan.run_folder)
    assert made.wait(make_driver(0)) is None
    made.collect_samples()
    (run,) = made.record.runs
    assert (run.stored_bytes, run.order) == (5, 7)
    assert made.record.environments == {"0": {"python": "3"}}
    assert (run.first_seconds, run.seconds, run.group_seconds) == (
        0.25,
        [0.25] * timed,
        [0.25] * timed,
    )
    assert run.warmup_seconds == [0.25] * (6 - timed)


@pytest.mark.parametrize(("report", "code", "problem"), [
    (DriverReport(Run(nodes={"driver": 0}), finished=True), 0, None),
    (DriverReport(Run(nodes={"driver": 0}), failure="no link"), 0, "no link"),  # after the iterations, actors may end
    (DriverReport(Run()), None, "reference died"),
    (DriverReport(Run(), failure="policy: a reason", actor_raised=True), 0, "policy: a reason"),
    (DriverReport(Run(), failure="policy: a reason", actor_raised=True), None, "policy: a reason"),
    (DriverReport(Run(), failure="policy: a reason"), 0, "reference died"),
    (DriverReport(Run(), failure="policy: a reason"), None, "reference died"),
])  # fmt: skip
def test_an_actor_that_ends_early_is_the_cause_unless_another_one_raised_an_error(
    plan, made, report, code, problem
):
    """The actor ends between two looks of the monitor, directly after the driver has written its report."""

    def find_exited_actors(_):
        report.write(plan.run_folder)
        return ["reference"]

    made._find_exited_actors = find_exited_actors
    assert (
        made.wait(make_driver(code)) == problem
    )  # after GRACE_SECONDS, if the driver does not end


@pytest.mark.parametrize(("code", "problem"), [
    (None, "the GCS ended"), (0, "exit code 0"), (-signal.SIGKILL, "the driver's process ended with signal SIGKILL"),
])  # fmt: skip
def test_the_end_of_the_gcs_is_named_unless_the_driver_has_ended_too(plan, made, code, problem):
    (plan.run_folder / "gcs").write_text(f"{2**22 + 1}\n")  # above the largest process id
    assert problem in made.wait(make_driver(code))


def test_ended_processes_are_found_except_those_of_the_driver(made, sleeper):
    dead = subprocess.Popen(["true"])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    driver = make_driver()
    driver.pid = 2**22 + 1  # no process has this id
    pids = (driver.pid, sleeper.pid, dead.pid, driver.pid)
    for name, pid in zip(NAMES, pids, strict=True):
        made.progress.add_process(name, pid, own_place())
    assert made._find_exited_actors(driver) == ["reference"]
    dead.wait()


@pytest.mark.parametrize("known_here", [True, False], ids=["here", "in another container"])
def test_the_process_id_of_another_container_is_not_looked_up_here(
    plan, made, monkeypatch, known_here
):
    """The worker's folder is shared, and its process id belongs to an ended process of this machine, or to none."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    monkeypatch.setattr(progress_table.os, "getpid", lambda: dead.pid)
    if not known_here:
        monkeypatch.setattr(progress_table, "own_place", lambda: own_place() + 1)
    ProgressTable(plan.run_folder, NAMES, plan.total_iterations, "reward").received(3)
    monkeypatch.undo()
    assert made._find_exited_actors(make_driver()) == (["reward"] if known_here else [])
    assert made.progress.numbers()["reward"] == 3
    assert ("reward" in made.progress.processes()) == known_here


def test_the_process_ids_of_an_earlier_version_are_known(made, sleeper):
    """The driver of another checkout (--against) writes them without a place."""
    made.progress.processes_written[1] = sleeper.pid
    assert made.progress.processes() == {"policy": sleeper.pid}


def test_the_end_of_a_run_is_linear_in_its_iterations(plan, tmp_path):
    """Compare the time per iteration at two sizes, of which the larger one has 200,000 iterations."""

    def seconds_per_iteration(iterations):
        folder = tmp_path / str(iterations)
        folder.mkdir()
        options = replace(plan.options, iterations=iterations, warmup=1)
        record = plan.new_record()
        record.runs.append(Run())
        monitor = Monitor(replace(plan, options=options, run_folder=folder), record)
        for number in range(1, iterations + 3):
            monitor.progress.ended(number, number, number + 0.25)
        begin = time.process_time()
        monitor.collect_samples()
        took = time.process_time() - begin
        (run,) = monitor.record.runs
        assert len(run.seconds) == len(run.group_seconds) == iterations
        return took / iterations

    small = min(seconds_per_iteration(size) for size in (10_000, 10_001, 10_002))
    assert seconds_per_iteration(200_000) < 4 * small


@pytest.mark.parametrize(("times", "size", "expected"), [
    ([], 3, []),
    ([(0, 1), (1, 2), (2, 4)], 1, [1, 1, 2]),
    ([(0, 1), (1, 2), (2, 4)], 2, [2, 2]),
    ([(0, 3), (1, 4), (2, 5), (5, 6)], 3, [5, 1]),
])  # fmt: skip
def test_a_group_lasts_from_its_first_start_to_its_last_end(times, size, expected):
    assert time_groups(times, size) == expected


def test_the_bar_says_what_is_started_until_the_first_iteration(plan, made, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(monitor, "MIN_START_SECONDS", 0.3)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    object.__setattr__(plan.options, "timeout", 0.3)
    made.wait(make_driver())
    assert "gloo: starting the actors [00:00]" in terminal.getvalue()
    assert "%" not in terminal.getvalue()
    made.progress.phase = ITERATING
    made.progress.ended(1, 0, 1)
    made.wait(make_driver())
    assert "1/" in terminal.getvalue() and "iterations" in terminal.getvalue()


def test_an_actor_that_is_stuck_says_where(plan, made, monkeypatch):
    asked = []

    def ask(folder, pid):
        asked.append((folder, pid))
        return 'Thread 0x1:\n  File "/ray/rdt_store.py", line 323 in _wait_object'

    monkeypatch.setattr(monitor, "ask_for_stacks", ask)
    made.progress.began(1)
    for name in NAMES[1:]:
        ProgressTable(plan.run_folder, NAMES, plan.total_iterations, name)
    place = "policy is in _wait_object (rdt_store.py:323)"
    assert made.diagnose([]) == f"policy is stuck after iteration 0: {place}"
    assert asked == [(plan.run_folder, os.getpid())]


def test_a_sender_of_a_stuck_actor_says_where_it_is(plan, made, monkeypatch):
    places = {1: "read (channel.py:7)", 2: "write (channel.py:9)"}
    monkeypatch.setattr(monitor, "ask_for_stacks", lambda folder, pid: str(pid))
    monkeypatch.setattr(monitor, "name_waits", lambda stacks: [places[int(stacks)]])
    made.progress.began(5)
    made.progress.ended(4, 0, 1)
    policy, reference, reward = NAMES[1:]
    received = {policy: 5, reference: 4, reward: 4}
    text = made._find_late_actor(received, {policy: 2, reference: 1})
    assert text == (
        "reference is stuck after iteration 4: reference is in read (channel.py:7); "
        "policy, which sends to it, is in write (channel.py:9)"
    )


def test_run_without_progress_times_out(plan, made, monkeypatch):
    monkeypatch.setattr(monitor, "MIN_START_SECONDS", 0.2)
    object.__setattr__(plan.options, "timeout", 0.1)
    assert made.wait(make_driver()) == "startup timed out after 0.2 s"
    made.progress.phase = ITERATING
    made.progress.began(1)
    assert (
        made.wait(make_driver())
        == "did not end within 0.1 s (--timeout); policy is stuck after iteration 0"
    )


def test_only_a_limit_that_the_flag_has_set_is_named_after_it(plan, made, monkeypatch):
    monkeypatch.setattr(monitor, "MIN_START_SECONDS", 0.2)
    object.__setattr__(plan.options, "timeout", 0.1)
    made.progress.phase = ENDING
    assert made.wait(make_driver()).startswith("did not end within 0.2 s; ")
    object.__setattr__(plan.options, "timeout", 0.3)
    assert made.wait(make_driver()).startswith("did not end within 0.3 s (--timeout); ")


def test_the_actors_that_did_not_start_are_named(plan, made, monkeypatch):
    monkeypatch.setattr(monitor, "MIN_START_SECONDS", 0.2)
    object.__setattr__(plan.options, "timeout", 0.1)
    actors = plan.task_flow.actors
    made.progress.add_process(actors[0], os.getpid(), 0)
    missing = ", ".join(actors[1:])
    assert made.wait(make_driver()) == f"startup timed out after 0.2 s: {missing} did not start"
    made.plan = replace(plan, device="cuda", gpus=1)
    assert made.plan.gpus_per_actor == 0.3333
    assert made.wait(make_driver()).endswith("(each actor needs 0.3333 of 1 GPU)")
    made.plan = replace(plan, device="cuda", gpus=3)
    assert made.wait(make_driver()).endswith("(each actor needs 1 of 3 GPUs)")


@pytest.mark.parametrize(("seen", "words"), [(0, "0 GPUs"), (1, "1 GPU"), (2, "2 GPUs")])
def test_a_run_fails_if_torch_sees_fewer_gpus_than_the_machine_has(plan, monkeypatch, seen, words):
    monkeypatch.setattr(driver.torch.cuda, "device_count", lambda: seen)
    report = DriverReport(run=Run(order=1))
    with pytest.raises(RunFailed, match=f"^torch sees {words}, the machine has 3: see nvidia-smi$"):
        driver.measure_plan(replace(plan, device="cuda", gpus=3), report)


def test_a_run_that_takes_too_long_altogether_ends_although_it_makes_progress(plan, made):
    object.__setattr__(plan.options, "run_limit", 0.3)
    made.progress.phase = ITERATING
    made.began_at -= 0.2
    assert made.wait(make_driver()) == "the run did not end within 0.3 s (--run-limit)"


@pytest.mark.parametrize(
    "content", ["", "\xff\x00{garbage\n", '{"run": {"secnods": []}}', '{"run": {"order": "one"}}']
)
def test_a_report_that_cannot_be_read_fails_the_run_and_the_times_are_kept(made, tmp_path, content):
    made.plan = replace(
        made.plan, options=replace(made.plan.options, warmup=3)
    )  # no report has been read
    made.progress.phase = ITERATING
    made.progress.began(7)
    for number in range(1, 7):
        made.progress.ended(number, number, number + 0.25)

    def spoil(*_):
        if content:
            (tmp_path / "report").write_text(content, "latin-1")
        else:
            shutil.rmtree(tmp_path)

    made.follow_driver(
        SimpleNamespace(folder=tmp_path, poll_handle=0, pid=os.getpid(), start_driver=spoil)
    )
    (run,) = made.record.runs
    assert run.reason.startswith("iteration 7: the report of the driver's process cannot be read (")
    assert (run.status, run.seconds) == ("failed", [0.25] * 2)


def test_limits_of_the_shell_are_named_if_a_process_was_ended(made, monkeypatch):
    unlimited, limits = monitor.resource.RLIM_INFINITY, " (limits of this shell: ulimit -v 524288)"
    values = {
        monitor.resource.RLIMIT_AS: (2**29, -1),
        monitor.resource.RLIMIT_CPU: (unlimited, unlimited),
    }
    monkeypatch.setattr(monitor.resource, "getrlimit", values.get)
    problem = made.wait(make_driver(-signal.SIGKILL))
    assert problem == f"the driver's process ended with signal SIGKILL{limits}"
    assert made.diagnose(["policy"]) == f"policy died{limits}"
