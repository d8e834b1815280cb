# SPDX-License-Identifier: Apache-2.0
"""Measure iterations: a first one, a warm-up until times and page faults settle, and the timed ones.

The clock runs only in `time_group`. The pools of payloads are made before it starts; the messages are verified after
it has stopped. Whatever is done for each message is inside: the sequence number, --message packed, --copy-in.
"""

from collections import ChainMap
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from common.timing import time_group
from dataflow.endpoints import tensors
from dataflow.endpoints.progress_table import ENDING, ITERATING
from dataflow.errors import RunFailed
from dataflow.measure.counters import Counters
from dataflow.measure.data_path import find_other_data_path, mark_requested_paths
from dataflow.measure.driver_report import DriverReport
from dataflow.measure.study_results import StudyResults
from dataflow.measure.verified import Verified
from dataflow.measure.warm_up import WarmUp, iteration_groups
from dataflow.plan.plan import Plan
from dataflow.trace.spans import Recorded, collect_spans
from dataflow.workers.worker_group import Connection, WorkerGroup


class Measurement:
    """Run and verify all iterations, and set the fields of `report.run`. The times go to the progress table."""

    def __init__(
        self, plan: Plan, workers: WorkerGroup, connection: Connection, report: DriverReport
    ) -> None:
        """Prepare the measurement, and ask the workers, which have started, for their first counts."""
        self.plan = plan
        self.workers = workers
        self.connection = connection
        self.report = report
        self.run = report.run
        self.table = workers.driver.progress
        options = plan.options
        self.warm_up = WarmUp(
            is_fixed=options.warmup is not None, keeps_memory=options.retain_memory
        )
        self.last = 0  # the iteration that was verified last
        self.verified = Verified(plan)
        self.studies = StudyResults(plan, workers)
        self.counters = Counters(plan, workers)
        self.counted = self.counters.first

    def measure(self) -> None:
        """Run all groups of iterations, and then read what was counted and set the status of the run.

        Wrong bytes and another data path make the status "failed". Raise RunFailed if the verification accepts what
        nobody has sent, and what the transport or a worker raises.
        """
        self.try_verification()
        self.table.phase = ITERATING
        for numbers, is_timed in iteration_groups(self.plan, self.warm_up):
            if is_timed and not self.workers.first_timed:
                self.begin_timed(numbers[0])
            self.run_and_verify(numbers, is_timed)
        self.table.phase = ENDING
        self.workers.call("release")  # what still holds a view could block the end of its transport
        self.counters.set_costs(self.run)
        for field, value in self.connection.facts().items():
            setattr(self.run, field, value)
        if self.plan.options.trace:
            self.set_spans()
        self.judge()

    def try_verification(self) -> None:
        """Let the readers verify what nobody has sent; raise RunFailed if they accept it."""
        found = self.workers.call("try_on_unsent_memory")
        self.run.unsent_wrong_bytes = dict(ChainMap(*found.values()))
        for edge in self.plan.task_flow.edges:
            if edge.bytes and not self.run.unsent_wrong_bytes[str(edge)]:
                raise RunFailed(
                    f"{edge}: the verification accepts memory to which nobody has sent: it cannot fail"
                )

    def begin_timed(self, number: int) -> None:
        """Begin to count, because the next iteration is the first timed one."""
        self.workers.first_timed = number
        self.run.warmup_iterations = number - 2
        self.run.settled = self.warm_up.settled
        self.report.write(self.plan.run_folder)
        self.counters.begin_timed()
        self.counted = self.counters.begin

    def send(self, number: int) -> Any:
        """Make the query of an iteration, and hand it to the transport."""
        self.table.began(number)
        return self.connection.submit(self.workers.driver.make_payload(number))

    def receive(self, sent: Any) -> None:
        """Wait until the results of an iteration are in the memory of the driver's device."""
        self.workers.driver.receive(self.connection.collect(sent))
        tensors.synchronise()

    def run_and_verify(self, numbers: range, is_timed: bool) -> None:
        """Run a group of iterations inside the clock, and verify it outside.

        Wrong bytes raise no error: the report has them at once. What the transport or a worker raises is raised here.
        """
        self.workers.first_iteration = numbers[0]
        self.last = numbers[-1]
        in_flight = self.plan.options.in_flight
        save_times = self.table.ended
        cpu_time = self.counters.cpu_time
        cpu_time.start()
        time_group(numbers, in_flight, self.send, self.receive, save_times)
        cpu_time.stop()
        self.studies.end_group(self.last, is_timed)
        self.verify(numbers[0])
        if is_timed:
            self.run.group_faults.append(self.count_new_faults())
        elif not self.warm_up.is_fixed:
            self.note_warm_up(numbers)
        is_first = numbers[0] == 1
        if is_first:
            self.run.readers_own_a_copy = self.verified.readers_own_a_copy()
        if self.verified.wrong or is_first:
            self.report.write(self.plan.run_folder)

    def verify(self, first: int) -> None:
        """Verify the messages from this iteration to the last one."""
        found = self.workers.call("verify", first, self.last)
        for wrong, views in found.values():
            self.verified.add_wrong(wrong)
            self.verified.add_views(views)
        self.verified.add_wrong(self.connection.check())
        self.verified.set_wrong_bytes(self.run)

    def note_warm_up(self, numbers: range) -> None:
        """Tell the warm-up how long these iterations took, and how many page faults they had; nothing of the first."""
        new_faults = self.count_new_faults()
        first = numbers[0]
        if first == 1:
            return
        begin, end = self.table.interval(first, self.last)
        seconds = end - begin
        # If sizes change, larger messages take longer: that is no change of the time per byte.
        count = len(numbers) * self.plan.relative_bytes(numbers)
        self.warm_up.seconds.append(seconds / count)
        self.warm_up.faults.append(new_faults / count)

    def count_new_faults(self) -> int:
        """Return the page faults of all processes since this was called before, without those of verifications."""
        earlier = self.counted
        self.counted = self.counters.read()
        return self.counted.faults - earlier.faults

    def set_spans(self) -> None:
        """--trace: set the spans of all processes in the timed iterations, or in the groups if iterations overlap."""
        options = self.plan.options
        overlap = options.in_flight > 1
        size = options.group_size if overlap else 1
        intervals = []
        timed = self.timed_numbers()
        for first in timed[::size]:
            last = min(first + size - 1, self.last)
            interval = self.table.interval(first, last)
            intervals.append(interval)
        spans = self.workers.call("spans")
        spans |= self.connection.spans()
        if self.workers.nodes:
            for name in self.plan.worker_names:
                driver_seconds = partial(self.workers.driver_seconds, name)
                spans[name] = move_spans(spans[name], driver_seconds)
        self.run.iterations_us, self.run.spans = collect_spans(spans, intervals)

    def timed_numbers(self) -> range:
        """Return the numbers of the timed iterations so far."""
        first = self.workers.first_timed
        return range(first, self.last + 1)

    def judge(self) -> None:
        """Set the status, and the reason if the run has failed."""
        plan = self.plan
        run = self.run
        nodes = self.workers.worker_nodes
        failures = [
            self.verified.find_failure(),
            *self.studies.collect(run),
            find_other_data_path(plan, run, nodes, self.timed_numbers()),
        ]
        run.reason = next(filter(None, failures), None)
        run.status = "failed" if run.reason else "ok"
        mark_requested_paths(plan, run, nodes, self.verified.views)


def move_spans(
    spans: Sequence[Recorded], driver_seconds: Callable[[float], float]
) -> list[Recorded]:
    """Return a worker's spans with times of the driver's clock."""
    moved = []
    for thread, stage, start, end, faults in spans:
        moved.append((thread, stage, driver_seconds(start), driver_seconds(end), faults))
    return moved
