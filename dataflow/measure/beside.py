"""Run another flow while a configuration is measured (--beside)."""

import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from dataflow.errors import RunFailed
from dataflow.measure.monitor import MIN_START_SECONDS, POLL_SECONDS, DriverReport, Monitor
from dataflow.plan.plan import Plan
from dataflow.records.schema import Run
from dataflow.workers.cleanup import RunFolder


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
        monitor = Monitor(replace(plan, run_folder=folder.folder, shared_folder=folder.shared), record)

        def wait_until(moment: float, seconds: float) -> list[float]:
            """Wait until an iteration ends after this moment, and return the ends of all."""
            deadline, failure = time.monotonic() + seconds, ""
            while not failure:
                has_ended = select.select([folder.poll_handle], [], [], POLL_SECONDS)[0]  # before the table is read
                ends = [monitor.progress.iteration(number)[1] for number in range(1, 1 + monitor.progress.progress[2])]
                report = msgspec.json.decode((folder.folder / "report").read_bytes(), type=DriverReport)
                failure = f"{report.run.wrong_bytes} bytes differ" if report.run.wrong_bytes else report.failure
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
                raise RunFailed(f"--beside {plan.requested_flow.name}: no iteration of it ended during the run")
            return inside

        monitor.start_driver(folder)
        wait_until(0.0, max(plan.options.timeout, MIN_START_SECONDS))
        yield count
