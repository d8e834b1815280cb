"""Follow the driver process of a run until it ends or must be ended, and find out what went wrong.

`run_beside` runs another flow beside it (--beside).
The monitor asks no process anything, because a process that hangs does not answer.
"""

import dataclasses
import math
import pickle
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil

from common.record import replace
from dataflow.endpoints.progress_table import ENDING, STARTING, ProgressTable
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER
from dataflow.plan.plan import Plan
from dataflow.records.schema import Record, Run
from dataflow.workers.cleanup import ROOT, RunFolder, process_status
from dataflow.workers.variables import driver_environment

MIN_START_SECONDS = 120  # time to start and to end, if --timeout is shorter
POLL_SECONDS = (
    0.2  # not shorter: on few cores, a process that wakes up takes a core from an iteration
)
GRACE_SECONDS = 2  # for the driver to report the error of an actor that ended


class DriverReport(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The file "report" of the run folder: what the driver process knows. It replaces the file in one step."""

    run: Run  # without the times of the iterations, which are in the progress table
    environments: list[
        dict[str, Any]
    ] = []  # of the nodes, the driver's first; empty for a node without actors
    failure: str = ""  # why the iterations ended early
    actor_raised: bool = False  # the failure is an error that an actor raised
    finished: bool = False

    def write(self, folder: Path) -> None:
        replace(folder / "report", msgspec.json.encode(self))


class Monitor:
    """Start the driver process of a plan, and follow it to its end. The record's last run gets all that is known."""

    def __init__(self, plan: Plan, record: Record) -> None:
        self.plan, self.record = plan, record
        self.progress = ProgressTable(plan.run_folder, plan.worker_names, plan.total_iterations)
        DriverReport(record.runs[-1]).write(plan.run_folder)
        self.exited: list[str] = []  # the actors whose processes ended first
        self.give_up_at = math.inf  # seconds of the monotonic clock
        self.state: Any = None  # progress and report
        self.changed_at = time.monotonic()

    def start_driver(self, run_folder: RunFolder) -> None:
        checkout = self.plan.checkout or ROOT
        python = checkout / ".venv" / "bin" / "python"
        interpreter = str(python) if self.plan.checkout and python.exists() else sys.executable
        command = [interpreter, "-m", "dataflow.measure.driver", str(run_folder.folder)]
        (run_folder.folder / "plan").write_bytes(
            pickle.dumps(self.plan)
        )  # a neighbouring version may have to read it
        run_folder.start_driver(command, checkout, driver_environment(self.plan))

    def follow_driver(self, run_folder: RunFolder) -> None:
        """Start the driver process and wait for its end."""
        self.start_driver(run_folder)
        try:
            problem = self.wait(run_folder)
        except (
            FileNotFoundError,
            msgspec.DecodeError,
        ) as error:  # another program, or a flow of the user, spoiled it
            problem = f"the report of the driver's process cannot be read ({error})"
        finally:
            self.collect_samples()
        if problem:
            moments = {STARTING: "before the first iteration", ENDING: "after the last iteration"}
            moment = moments.get(self.progress.phase, f"iteration {self.iteration}")
            self.record.runs[-1].status, self.record.runs[-1].reason = (
                "failed",
                f"{moment}: {problem}",
            )

    def wait(self, driver: RunFolder) -> str | None:
        """Wait until the driver process has ended, or must be ended. Return what went wrong, if anything."""
        from tqdm import tqdm

        tqdm.monitor_interval = 0  # no thread that wakes up during iterations
        options, total = self.plan.options, self.plan.total_iterations
        # The bar prints nothing before the first iteration, and nothing into a pipe.
        with tqdm(
            total=total,
            unit=" iterations",
            desc=self.plan.transport.name,
            disable=None,
            leave=False,
            delay=1e-3,
        ) as bar:
            while True:
                has_ended = bool(select.select([driver.poll_handle], [], [], POLL_SECONDS)[0])
                # The report is read afterwards, so it has all that was reported before these actors ended.
                exited = self._find_exited_actors(driver)
                content = (self.plan.run_folder / "report").read_bytes()
                report = msgspec.json.decode(content, type=DriverReport)
                self.record.runs[-1] = report.run
                known = enumerate(report.environments)
                self.record.environments |= {
                    str(node): environment for node, environment in known if environment
                }
                # Actors may end when the report names the nodes, after the last iteration. Others end because the first
                # ones did. Ray ends all actors of a cluster at once; only the report knows which died on another node.
                if (
                    not self.exited
                    and not report.run.nodes
                    and not (options.address and report.failure)
                ):
                    self.exited = exited
                if report.run.warmup_iterations is not None:
                    bar.total = 1 + report.run.warmup_iterations + options.iterations
                bar.update(max(0, self.progress.progress[2] - bar.n))
                if has_ended and report.finished:
                    return None
                problem = self._find_end(driver, has_ended, report) or self._explain_timeout(
                    content, exited
                )
                if problem:
                    return problem

    def _find_end(self, driver: RunFolder, has_ended: bool, report: DriverReport) -> str | None:
        """Return why the run has ended or must be ended, although the report is not finished; None if it goes on.

        The cause is what an actor raised before it ended, or an actor that died, or else the failure of the driver.
        """
        with suppress(
            OSError, ValueError
        ):  # there is no private cluster, or its ids are being written
            has_gcs = process_status(int((self.plan.run_folder / "gcs").read_text()))
            if (
                not has_ended and not has_gcs and process_status(driver.pid)
            ):  # whose end also ends the GCS
                return "the GCS ended (Ray's process that keeps the state of the cluster)"
        if has_ended and not report.failure:
            code = driver.returncode()
            cause = (
                f"signal {signal.Signals(-code).name}"
                if code < 0
                else f"exit code {code} and no report"
            )
            return f"the driver's process ended with {cause}{describe_limits()}"
        if (report.failure or self.exited) and self.give_up_at == math.inf:
            self.give_up_at = time.monotonic() + GRACE_SECONDS
        if not has_ended and time.monotonic() <= self.give_up_at:
            return None
        # The first error comes first: other actors may have failed because they lost their peer.
        paths = sorted(
            self.plan.run_folder.glob("*.error"), key=lambda path: path.stat().st_mtime_ns
        )
        errors = {path.stem: f"{path.stem} raised {path.read_text('utf-8')}" for path in paths}
        silent = [name for name in self.exited if name not in errors]
        if silent and not report.actor_raised:
            return self.diagnose(silent)
        return next(iter(errors.values()), report.failure)

    def _find_exited_actors(self, driver: RunFolder) -> list[str]:
        """Return the actors whose processes have ended, except those that live in the driver's process."""
        processes = self.progress.processes().items()
        return [name for name, pid in processes if pid != driver.pid and not process_status(pid)]

    def collect_samples(self) -> None:
        """Set the times of all iterations that have ended, whatever happened after them."""
        run, size = self.record.runs[-1], self.plan.options.group_size
        # The clock counts nanoseconds; more digits would only make the record larger.
        ended = [
            self.progress.iteration(number) for number in range(1, 1 + self.progress.progress[2])
        ]
        seconds = [round(end - start, 9) for start, end in ended]
        # A number that is not given is known when the warm-up has ended.
        warmup = (
            run.warmup_iterations if self.plan.options.warmup is None else self.plan.options.warmup
        )
        untimed = len(ended) if warmup is None else 1 + warmup
        groups = [ended[untimed:][n : n + size] for n in range(0, len(ended) - untimed, size)]
        run.first_seconds = seconds[0] if seconds else None
        run.warmup_seconds, run.seconds = seconds[1:untimed], seconds[untimed:]
        run.group_seconds = [round(group[-1][1] - group[0][0], 9) for group in groups]

    def _explain_timeout(self, report: bytes, exited: Sequence[str]) -> str | None:
        """Return which actor is late if neither the progress nor the report has changed for too long."""
        state, now, address = (
            (self.progress.progress, report),
            time.monotonic(),
            self.plan.options.address,
        )
        if state != self.state:
            self.state, self.changed_at = state, now
        limit = self.plan.options.timeout
        if self.progress.phase in (STARTING, ENDING):
            limit = max(limit, MIN_START_SECONDS)
        if now - self.changed_at <= limit:
            return None
        if self.progress.phase == STARTING:
            advice = f": check that a Ray cluster answers at --address {address}" if address else ""
            return f"startup timed out after {limit:g} s{advice}"
        return f"did not end within {limit:g} s (--timeout); {self.diagnose(exited)}"

    def diagnose(self, exited: Sequence[str]) -> str:
        """Return which actor died (first), is stopped, or has not passed on the message of the open iteration."""
        if exited:
            consequence = (
                " (Ray ends actors that wait for an actor that died)" if len(exited) > 1 else ""
            )
            return f"{', '.join(exited)} died{consequence}{describe_limits()}"
        processes = self.progress.processes()
        stopped = [
            name for name, pid in processes.items() if process_status(pid) == psutil.STATUS_STOPPED
        ]
        if stopped:
            names = (
                DRIVER if DRIVER in stopped else ", ".join(stopped)
            )  # actors may live in the driver's process
            return f"{names} does not answer: its process is stopped"
        received, flow = self.progress.numbers(), self.plan.task_flow
        late = [name for name in flow.actors if received[name] < self.iteration]
        elsewhere = [name for name in late if name not in processes]
        if (
            self.plan.options.address and elsewhere
        ):  # the progress of another machine is not known here
            return f"no message arrived; the actors on other nodes are {', '.join(elsewhere)}"
        for task in flow.tasks:
            senders = {flow.actor(source) for source in task.reads}
            if task.actor in late and senders.isdisjoint(late):
                return f"{task.actor} is stuck after iteration {received[task.actor]}"
        return "all actors received their messages, but the result did not reach the driver"

    @property
    def iteration(self) -> int:
        """Return the number of the oldest iteration that is open, or else of the last one."""
        _, began, ended = self.progress.progress
        return min(began, ended + 1)


@contextmanager
def run_beside(plan: Plan | None) -> Iterator[Callable[[float, float], int]]:
    """Run the plan from before the block to its end, if there is one.

    Yield a function that returns how many of its iterations have ended between two times of time.perf_counter. It
    raises RunFailed if there is none, or if the flow has not gone on until the second time.
    """
    if not plan:
        yield lambda begin, end: 0
        return
    with RunFolder() as folder:
        record = msgspec.structs.replace(plan.new_record(), runs=[Run()])
        monitor = Monitor(
            dataclasses.replace(plan, run_folder=folder.folder, shared_folder=folder.shared), record
        )

        def wait_until(moment: float, seconds: float) -> list[float]:
            """Wait until an iteration ends after this moment, and return the ends of all."""
            deadline, failure = time.monotonic() + seconds, ""
            while not failure:
                has_ended = select.select([folder.poll_handle], [], [], POLL_SECONDS)[
                    0
                ]  # before the table is read
                ends = [
                    monitor.progress.iteration(number)[1]
                    for number in range(1, 1 + monitor.progress.progress[2])
                ]
                report = msgspec.json.decode(
                    (folder.folder / "report").read_bytes(), type=DriverReport
                )
                failure = (
                    f"{report.run.wrong_bytes} bytes differ"
                    if report.run.wrong_bytes
                    else report.failure
                )
                if not failure and ends and ends[-1] > moment:
                    return ends
                if not failure and has_ended:
                    failure = f"it ended after {len(ends)} iterations: give it larger messages"
                if not failure and time.monotonic() > deadline:
                    failure = f"no iteration ended for {seconds:g} s"
            raise RunFailed(f"--beside {plan.requested_flow.name}: {failure}")

        def count(begin: float, end: float) -> int:
            inside = sum(begin < moment <= end for moment in wait_until(end, plan.options.timeout))
            if not inside:
                raise RunFailed(
                    f"--beside {plan.requested_flow.name}: no iteration of it ended during the run"
                )
            return inside

        monitor.start_driver(folder)
        wait_until(0.0, max(plan.options.timeout, MIN_START_SECONDS))
        yield count


def describe_limits() -> str:
    """Return a part of a message about a process that was ended: the limits that the user's shell has set."""
    known = (("v", resource.RLIMIT_AS, 1024), ("t", resource.RLIMIT_CPU, 1))
    values = [(flag, resource.getrlimit(limit)[0], unit) for flag, limit, unit in known]
    limits = [
        f"ulimit -{flag} {value // unit}"
        for flag, value, unit in values
        if value != resource.RLIM_INFINITY
    ]
    return f" (limits of this shell: {', '.join(limits)})" if limits else ""
