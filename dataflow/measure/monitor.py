# SPDX-License-Identifier: Apache-2.0
"""Follow the driver process of a run until it ends or must be ended, and find out what went wrong.

`run_beside` runs another flow beside it (--beside).
The monitor depends on no answer of a process, because one that hangs may give none. It only asks an actor that is stuck
where its threads are, by a signal.
"""

import dataclasses
import math
import pickle
import resource
import select
import signal
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import psutil

from common.gpus import gpus_in_words
from dataflow.endpoints.progress_table import ENDING, STARTING, ProgressTable
from dataflow.endpoints.stacks import ask_for_stacks, name_waits
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER
from dataflow.measure.driver_report import DriverReport
from dataflow.plan.plan import Plan
from dataflow.records.schema import Record, Run
from dataflow.workers.cleanup import ROOT, RunFolder, process_status
from dataflow.workers.variables import driver_environment

MIN_START_SECONDS = 120  # time to start and to end, if --timeout is shorter
# Not shorter: on few cores, a process that wakes up takes a core from an iteration.
POLL_SECONDS = 0.2
GRACE_SECONDS = 2  # for the driver to report the error of an actor that ended


class Monitor:
    """Start the driver process of a plan, and follow it to its end. The record's last run gets all that is known."""

    def __init__(self, plan: Plan, record: Record) -> None:
        self.plan = plan
        self.record = record
        self.progress = ProgressTable(plan.run_folder, plan.worker_names, plan.total_iterations)
        self.exited: list[str] = []  # the actors whose processes ended first
        self.give_up_at = math.inf  # seconds of the monotonic clock
        self.state: Any = None  # progress and report
        self.began_at = time.monotonic()
        self.changed_at = self.began_at
        report = DriverReport(record.runs[-1])
        report.write(plan.run_folder)

    def start_driver(self, run_folder: RunFolder) -> None:
        """Start the driver process, with the code of the plan's checkout if the plan has one.

        Its interpreter is that of the checkout's .venv, else the one of this process. Raise RunFailed if the process
        cannot be started. If it cannot read the plan, its report says so.
        """
        folder = run_folder.folder
        checkout = self.plan.checkout or ROOT
        interpreter = sys.executable
        if self.plan.checkout:
            python = checkout / ".venv" / "bin" / "python"
            if python.exists():
                interpreter = str(python)
        # A neighbouring version may have to read it.
        pickled = pickle.dumps(self.plan)
        (folder / "plan").write_bytes(pickled)
        command = [interpreter, "-m", "dataflow.measure.driver", str(folder)]
        environment = driver_environment(self.plan)
        run_folder.start_driver(command, checkout, environment)

    def follow_driver(self, run_folder: RunFolder) -> None:
        """Start the driver process and wait for its end. Raise RunFailed if it cannot be started.

        The record's last run gets its times, and, if something went wrong, the status "failed" with the reason.
        """
        self.start_driver(run_folder)
        try:
            problem = self.wait(run_folder)
        except (FileNotFoundError, msgspec.DecodeError) as error:
            # Another program, or a flow of the user, spoiled it.
            problem = f"the report of the driver's process cannot be read ({error})"
        finally:
            self.collect_samples()
        if problem:
            moments = {STARTING: "before the first iteration", ENDING: "after the last iteration"}
            moment = moments.get(self.progress.phase, f"iteration {self.iteration}")
            run = self.record.runs[-1]
            run.status = "failed"
            run.reason = f"{moment}: {problem}"

    def wait(self, driver: RunFolder) -> str | None:
        """Wait until the driver process has ended, or must be ended. Return what went wrong, if anything.

        No process is ended here. If the report cannot be read, raise FileNotFoundError or msgspec.DecodeError.
        """
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # no thread that wakes up during iterations
        name = self.plan.transport.name
        # It prints nothing into a pipe, and nothing before the first update.
        with tqdm(unit=" iterations", desc=name, disable=None, leave=False, delay=1e-3) as bar:
            while True:
                has_ended = bool(select.select([driver.poll_handle], [], [], POLL_SECONDS)[0])
                # The report is read afterwards, so it has all that was reported before these actors ended.
                exited = self._find_exited_actors(driver)
                content = (self.plan.run_folder / "report").read_bytes()
                report = msgspec.json.decode(content, type=DriverReport)
                self._take_over(report)
                self._remember_first_exits(exited, report)
                self._show_progress(bar)
                if has_ended and report.finished:
                    return None
                problem = self._find_end(driver, has_ended, report)
                problem = problem or self._explain_timeout(content, exited)
                if problem:
                    return problem

    def _remember_first_exits(self, exited: list[str], report: DriverReport) -> None:
        """Remember the actors that ended first, too early: others end because they did."""
        # Actors may end when the report names the nodes, after the last iteration.
        may_end = bool(report.run.nodes)
        # Ray ends all actors of a cluster at once; only the report knows which died on another node.
        is_known_by_report = bool(self.plan.options.address and report.failure)
        if not self.exited and not may_end and not is_known_by_report:
            self.exited = exited

    def _take_over(self, report: DriverReport) -> None:
        """Copy what the driver process knows into the record."""
        self.record.runs[-1] = report.run
        for node, environment in enumerate(report.environments):
            if environment:
                self.record.environments[str(node)] = environment

    def _show_progress(self, bar: Any) -> None:
        """Say what is being started, and later how many iterations have ended."""
        if self.progress.phase == STARTING:
            bar.bar_format = f"{{desc}}: {self._start_step} [{{elapsed}}]"
        else:
            bar.bar_format = None
        warmup = self.record.runs[-1].warmup_iterations
        if warmup is None:  # the largest possible number
            bar.total = self.plan.total_iterations
        else:
            bar.total = 1 + warmup + self.plan.options.iterations
        ended = self.progress.last_ended
        bar.update(max(0, ended - bar.n))

    @property
    def _start_step(self) -> str:
        """Return what takes most of the time before the first iteration."""
        if self.plan.options.address:
            return "joining the Ray cluster"
        return "starting Ray" if self.plan.transport.runtime.uses_ray else "starting the actors"

    def _find_end(self, driver: RunFolder, has_ended: bool, report: DriverReport) -> str | None:
        """Return why the run has ended or must be ended, although the report is not finished; None if it goes on.

        After a reported failure or the end of an actor, it goes on for GRACE_SECONDS: the driver may report more.
        The cause is what an actor raised before it ended, or an actor that died, or else the failure of the driver.
        """
        # The end of the driver's process also ends the GCS.
        if not has_ended and not self._has_gcs() and process_status(driver.pid):
            return "the GCS ended (Ray's process that keeps the state of the cluster)"
        if has_ended and not report.failure:
            cause = describe_exit(driver.returncode())
            return f"the driver's process ended with {cause}{describe_limits()}"
        now = time.monotonic()
        has_failed = report.failure or self.exited
        if has_failed and self.give_up_at == math.inf:
            self.give_up_at = now + GRACE_SECONDS
        if not has_ended and now <= self.give_up_at:
            return None
        errors = self._read_errors()
        silent = [name for name in self.exited if name not in errors]
        if silent and not report.actor_raised:
            return self.diagnose(silent)
        if errors:
            name, text = next(iter(errors.items()))
            return f"{name} raised {text}"
        return report.failure

    def _read_errors(self) -> dict[str, str]:
        """Return the errors that actors have written down, by name.

        The first error comes first: other actors may have failed because they lost their peer.
        """
        paths = [*self.plan.run_folder.glob("*.error")]
        paths.sort(key=lambda path: path.stat().st_mtime_ns)
        return {path.stem: path.read_text("utf-8") for path in paths}

    def _has_gcs(self) -> bool:
        """Return whether Ray's GCS of a private cluster runs; also True if there is none, or if it is being started."""
        with suppress(OSError, ValueError):  # there is no file, or it is being written
            pid = int((self.plan.run_folder / "gcs").read_text())
            return process_status(pid) is not None
        return True

    def _find_exited_actors(self, driver: RunFolder) -> list[str]:
        """Return the actors whose processes have ended, except those that live in the driver's process."""
        exited = []
        for name, pid in self.progress.processes().items():
            if pid != driver.pid and not process_status(pid):
                exited.append(name)
        return exited

    def collect_samples(self) -> None:
        """Set the times of all iterations that have ended, whatever happened after them."""
        options = self.plan.options
        run = self.record.runs[-1]
        times = self.progress.ended_iterations()
        # A number that is not given is known when the warm-up has ended.
        warmup = options.warmup
        if warmup is None:
            warmup = run.warmup_iterations
        untimed = len(times) if warmup is None else 1 + warmup
        # The clock counts nanoseconds; more digits would only make the record larger.
        seconds = [round(end - start, 9) for start, end in times]
        run.first_seconds = seconds[0] if seconds else None
        run.warmup_seconds = seconds[1:untimed]
        run.seconds = seconds[untimed:]
        timed = times[untimed:]
        run.group_seconds = time_groups(timed, options.group_size)

    def _explain_timeout(self, report: bytes, exited: Sequence[str]) -> str | None:
        """Return what is late if the run, or the time without progress and without a new report, is too long.

        The text goes on after the moment that `follow_driver` writes before it ("iteration 6: ").
        """
        idle_seconds = self._idle_seconds(report)
        run_limit = self.plan.options.run_limit
        if run_limit and time.monotonic() - self.began_at > run_limit:
            reason = f"the run did not end within {run_limit:g} s (--run-limit)"
            return reason + self._name_missing() if self.progress.phase == STARTING else reason
        address = self.plan.options.address
        timeout = self.plan.options.timeout
        limit = timeout
        if self.progress.phase in (STARTING, ENDING):
            limit = max(timeout, MIN_START_SECONDS)
        if idle_seconds <= limit:
            return None
        if self.progress.phase == STARTING:
            advice = f": check that a Ray cluster answers at --address {address}" if address else ""
            return f"startup timed out after {limit:g} s{self._name_missing()}{advice}"
        flag = " (--timeout)" if limit == timeout else ""
        return f"did not end within {limit:g} s{flag}; {self.diagnose(exited)}"

    def _idle_seconds(self, report: bytes) -> float:
        """Return for how long neither the progress nor the report has changed, and remember both."""
        now = time.monotonic()
        state = (self.progress.progress, report)
        if state != self.state:
            self.state = state
            self.changed_at = now
        return now - self.changed_at

    def _name_missing(self) -> str:
        """Return a part of a message: the actors that have not started, if others have or if they may have no GPU.

        Return "" if all have started, if it is not known, or on an existing cluster.
        """
        plan = self.plan
        started = self.progress.processes()
        missing = [name for name in plan.task_flow.actors if name not in started]
        if not missing or not (started or plan.gpus) or plan.options.address:
            return ""
        text = f": {', '.join(missing)} did not start"
        if not started:
            text += ", nor perhaps Ray"
        if plan.gpus:
            text += f" (each actor needs {plan.gpus_per_actor:g} of {gpus_in_words(plan.gpus)})"
        return text

    def diagnose(self, exited: Sequence[str]) -> str:
        """Return which actor died (first), is stopped, or has not passed on the message of the open iteration."""
        if exited:
            consequence = ""
            if len(exited) > 1:
                consequence = " (Ray ends actors that wait for an actor that died)"
            return f"{', '.join(exited)} died{consequence}{describe_limits()}"
        processes = self.progress.processes()
        stopped = []
        for name, pid in processes.items():
            if process_status(pid) == psutil.STATUS_STOPPED:
                stopped.append(name)
        if stopped:
            # Actors may live in the driver's process.
            names = DRIVER if DRIVER in stopped else ", ".join(stopped)
            return f"{names} does not answer: its process is stopped"
        received = self.progress.numbers()
        return self._find_late_actor(received, processes)

    def _find_late_actor(self, received: Mapping[str, int], pids: Mapping[str, int]) -> str:
        """Return which actor has not received the message of the open iteration, and where it and its senders are.

        received: the number of each worker's last message; pids: the processes of the workers on this machine. Each
        worker that is asked where it is may take stacks.WAIT_SECONDS.
        """
        flow = self.plan.task_flow
        late = [name for name in flow.actors if received[name] < self.iteration]
        elsewhere = [name for name in late if name not in pids]
        if self.plan.options.address and elsewhere:  # their progress is not known here
            return f"no message arrived; the actors on other nodes are {', '.join(elsewhere)}"
        for task in flow.tasks:
            senders = {flow.actor(source) for source in task.reads}
            # An actor whose sender is late, too, only waits for that one.
            if task.actor in late and senders.isdisjoint(late):
                places = self._describe_places(task.actor, senders, pids)
                return f"{task.actor} is stuck after iteration {received[task.actor]}{places}"
        senders = {flow.actor(source) for source in flow.returns}
        places = self._describe_places(DRIVER, senders, pids)
        return (
            f"all actors received their messages, but the result did not reach the driver{places}"
        )

    def _describe_places(self, reader: str, senders: Set[str], pids: Mapping[str, int]) -> str:
        """Return where a worker and those that send to it are, as the end of a sentence; "" if it is not known.

        Such as ": reward is in read (a.py:7); policy, which sends to it, is in write (a.py:9)".
        """
        text = ""
        place = self._find_place(reader, pids)
        if place:
            text += f": {reader} is in {place}"
        for sender in sorted(senders - {reader}):
            place = self._find_place(sender, pids)
            if place:
                text += f"; {sender}, which sends to it, is in {place}"
        return text

    def _find_place(self, worker: str, pids: Mapping[str, int]) -> str:
        """Return the calls in which threads of a worker are; "" if none is at work, or if it is on another machine."""
        if worker not in pids:
            return ""
        stacks = ask_for_stacks(self.plan.run_folder, pids[worker])
        return " and ".join(name_waits(stacks))

    @property
    def iteration(self) -> int:
        """Return the number of the oldest iteration that is open, or else of the last one."""
        return min(self.progress.last_begun, self.progress.last_ended + 1)


def time_groups(times: Sequence[tuple[float, float]], size: int) -> list[float]:
    """Return the seconds of each group of `size` iterations: from the first start to the last end.

    times: start and end of each iteration. The last group can be smaller.
    """
    seconds = []
    for first in range(0, len(times), size):
        last = min(first + size, len(times)) - 1
        begin, _ = times[first]
        _, end = times[last]
        seconds.append(round(end - begin, 9))
    return seconds


class Beside:
    """Another flow that runs beside a run: its driver process, and the iterations that have ended."""

    def __init__(self, plan: Plan, folder: RunFolder) -> None:
        self.name = plan.requested_flow.name
        self.folder = folder
        self.timeout = plan.options.timeout
        record = msgspec.structs.replace(plan.new_record(), runs=[Run()])
        own_plan = dataclasses.replace(plan, run_folder=folder.folder, shared_folder=folder.shared)
        self.monitor = Monitor(own_plan, record)

    def start(self) -> None:
        """Start it, and wait until its first iteration has ended."""
        self.monitor.start_driver(self.folder)
        self._wait_for_iteration(0.0, max(self.timeout, MIN_START_SECONDS))

    def count(self, begin: float, end: float) -> int:
        """Return how many iterations have ended between two times of time.perf_counter; raise RunFailed if none."""
        self._wait_for_iteration(end, self.timeout)
        ends = [moment for _, moment in self.monitor.progress.ended_iterations()]
        inside = bisect_right(ends, end) - bisect_right(ends, begin)
        if not inside:
            raise self._error("no iteration of it ended during the run")
        return inside

    def _wait_for_iteration(self, moment: float, seconds: float) -> None:
        """Wait until an iteration ends after this moment.

        Raise RunFailed if none does within so many seconds, if the flow fails, or if its driver process ends before.
        """
        deadline = time.monotonic() + seconds
        progress = self.monitor.progress
        while True:
            # Whether it has ended is known before the table is read.
            has_ended = bool(select.select([self.folder.poll_handle], [], [], POLL_SECONDS)[0])
            last = progress.last_ended
            if failure := self._read_failure():
                raise self._error(failure)
            if last and progress.iteration(last)[1] > moment:
                return
            if has_ended:
                raise self._error(f"it ended after {last} iterations: give it larger messages")
            if time.monotonic() > deadline:
                raise self._error(f"no iteration ended for {seconds:g} s")

    def _read_failure(self) -> str:
        """Return what its driver process says is wrong; "" if nothing is."""
        content = (self.folder.folder / "report").read_bytes()
        report = msgspec.json.decode(content, type=DriverReport)
        if report.run.wrong_bytes:
            return f"{report.run.wrong_bytes} bytes differ"
        return report.failure

    def _error(self, reason: str) -> RunFailed:
        return RunFailed(f"--beside {self.name}: {reason}")


@contextmanager
def run_beside(plan: Plan | None) -> Iterator[Callable[[float, float], int]]:
    """Run the plan from before the block to its end, if there is one.

    Yield a function that returns how many of its iterations have ended between two times of time.perf_counter. It
    raises RunFailed if there is none, or if the flow has not gone on until the second time. Without a plan, it returns
    0. Before the block, wait for the first iteration; raise RunFailed if there is none.
    """
    if not plan:
        yield lambda begin, end: 0
        return
    with RunFolder() as folder:
        beside = Beside(plan, folder)
        beside.start()
        yield beside.count


def describe_exit(code: int) -> str:
    """Return the exit code of a process that wrote no report, or the signal that ended it."""
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code} and no report"


def describe_limits() -> str:
    """Return a part of a message about a process that was ended: the limits that the user's shell has set."""
    known = [("v", resource.RLIMIT_AS, 1024), ("t", resource.RLIMIT_CPU, 1)]
    limits = []
    for flag, kind, unit in known:
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            limits.append(f"ulimit -{flag} {limit // unit}")
    return f" (limits of this shell: {', '.join(limits)})" if limits else ""
