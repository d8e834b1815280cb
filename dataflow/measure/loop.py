"""Measure iterations: a first one, a warm-up until times and page faults settle, and the timed ones.

The clock runs only in `time_group`. The pools of payloads are made before it starts; the messages are verified after
it has stopped. Whatever is done for each message is inside: the sequence number, --message packed, --copy-in.
"""

import time
from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import fmean, median
from typing import Any

import msgspec
import psutil

from common.timing import time_group
from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.endpoints import tensors
from dataflow.endpoints.progress_table import ENDING, ITERATING
from dataflow.errors import RunFailed
from dataflow.measure.data_path import find_other_data_path, mark_requested_paths
from dataflow.measure.monitor import DriverReport
from dataflow.measure.references import CpuTime
from dataflow.plan.options import MIN_WARMUP_GROUPS
from dataflow.plan.plan import Plan
from dataflow.records.schema import ProcessCost
from dataflow.studies import load, studies
from dataflow.workers.worker_group import Connection, WorkerGroup

READ_AS = {
    True: "views",
    False: "copies",
    None: "partly copies",
}  # by whether readers found views of shared memory
SETTLED_GROUPS = (
    MIN_WARMUP_GROUPS // 2
)  # in the steady state, they take as long as as many before them
MAX_SETTLED_CHANGE = 0.1  # of their median time, and of the page faults that the next ones save
MIN_FAULTS = 100  # per iteration; fewer take less than 0.3 ms
MAX_WARMUP_SECONDS = 30


class WarmUp:
    """Decide when the warm-up is over: after a fixed number of iterations, or when times and page faults settle."""

    def __init__(self, is_fixed: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_fixed, self.clock, self.begin = is_fixed, clock, clock()
        self.seconds: list[float] = []  # per iteration of each group
        self.faults: list[float] = []  # page faults per iteration of each group
        self.settled: bool | None = None  # None: unknown, because the number is fixed

    def is_over(self) -> bool:
        if self.is_fixed:
            return False
        self.settled = False
        if len(self.seconds) < 2 * SETTLED_GROUPS:
            return False
        before, last = slice(-2 * SETTLED_GROUPS, -SETTLED_GROUPS), slice(-SETTLED_GROUPS, None)
        old_seconds, new_seconds = median(self.seconds[before]), median(self.seconds[last])
        old_faults, new_faults = fmean(self.faults[before]), fmean(self.faults[last])
        is_falling = old_faults - new_faults > max(MAX_SETTLED_CHANGE * old_faults, MIN_FAULTS)
        self.settled = (
            abs(new_seconds - old_seconds) <= MAX_SETTLED_CHANGE * old_seconds and not is_falling
        )
        return self.settled or self.clock() - self.begin > MAX_WARMUP_SECONDS


def iteration_groups(plan: Plan, warm_up: WarmUp) -> Iterator[tuple[range, bool]]:
    """Yield the iterations between two verifications: the first one alone, then the warm-up, then the timed ones.

    The second value is whether they are timed.
    """
    yield range(1, 2), False
    options, number, stop = plan.options, 2, 2 + plan.max_warmup
    while not warm_up.is_over() and number < stop:
        yield range(number, min(number + options.in_flight, stop)), False
        number = min(number + options.in_flight, stop)
    stop = number + options.iterations
    for first in range(number, stop, options.group_size):
        yield range(first, min(first + options.group_size, stop)), True


class Measurement:
    """Run and verify all iterations, and set the fields of `report.run`. The times go to the progress table."""

    def __init__(
        self, plan: Plan, workers: WorkerGroup, connection: Connection, report: DriverReport
    ) -> None:
        self.plan, self.workers, self.connection, self.report, self.run = (
            plan,
            workers,
            connection,
            report,
            report.run,
        )
        self.table = workers.driver.progress
        self.warm_up, self.last = WarmUp(plan.options.warmup is not None), 0
        self.cpu_time = CpuTime()
        self.wrong: Counter[str] = Counter()  # bytes by edge and field
        self.views: dict[str, bool | None] = {}
        # What the parts of each study have measured: by worker, for each group, and whether it was timed.
        self.groups: dict[str, list[tuple[dict[str, Any], bool]]] = {
            name: [] for name in plan.parts
        }
        self.first_counted = self.counted = self.count()

    def count(self) -> dict[str, int]:
        """Return what Ray, the page tables of all processes and the loopback interface have counted so far.

        Page faults of verifications are not counted.
        """
        counters = self.workers.counters()
        costs = costs_by_process(self.workers.call("costs")).values()
        faults = counters["raylet_faults"] + sum(cost.minor_faults or 0 for cost in costs)
        loopback_bytes = psutil.net_io_counters(pernic=True)["lo"].bytes_recv
        return counters | {"faults": faults, "loopback_bytes": loopback_bytes}

    def measure(self) -> None:
        """Run all groups of iterations, and then read what was counted."""
        self.try_verification()
        self.table.phase = ITERATING
        for numbers, is_timed in iteration_groups(self.plan, self.warm_up):
            if is_timed and not self.workers.first_timed:
                self.begin_timed(numbers[0])
            self.run_and_verify(numbers, is_timed)
        self.table.phase = ENDING
        self.workers.call("release")  # what still holds a view could block the end of its transport
        self.read_counters()
        self.judge()

    def try_verification(self) -> None:
        """Let the readers verify what nobody has sent; raise RunFailed if they accept it."""
        self.run.unsent_wrong_bytes = dict(ChainMap(*self.workers.call("verify_unsent").values()))
        for edge in self.plan.task_flow.edges:
            if edge.bytes and not self.run.unsent_wrong_bytes[str(edge)]:
                raise RunFailed(
                    f"{edge}: the verification accepts memory to which nobody has sent: it cannot fail"
                )

    def begin_timed(self, number: int) -> None:
        """Begin to count, because the next iteration is the first timed one."""
        self.workers.first_timed = number
        self.run.warmup_iterations, self.run.settled = number - 2, self.warm_up.settled
        self.report.write(self.plan.run_folder)
        self.workers.call("reset_costs")
        self.counted = self.count()
        self.cpu_time.seconds = 0.0
        if self.workers.nodes:
            self.workers.nodes.begin()

    def send(self, number: int) -> Any:
        """Make the query of an iteration, and hand it to the transport."""
        self.table.began(number)
        return self.connection.submit(self.workers.driver.make_payload(number))

    def receive(self, sent: Any) -> None:
        """Wait until the results of an iteration are in the memory of the driver's device."""
        self.workers.driver.receive(self.connection.collect(sent))
        tensors.synchronise()

    def run_and_verify(self, numbers: range, is_timed: bool) -> None:
        """Run a group of iterations inside the clock, and verify it outside."""
        workers, connection, table = self.workers, self.connection, self.table
        workers.first_iteration, self.last = numbers[0], numbers[-1]
        self.cpu_time.start()
        time_group(numbers, self.plan.options.in_flight, self.send, self.receive, table.ended)
        self.cpu_time.stop()
        if self.plan.parts or self.plan.task_flow.has_parameters:
            measured = workers.call("end_group", self.last)
            for name, groups in self.groups.items():
                groups.append(({worker: of[name] for worker, of in measured.items()}, is_timed))
        for wrong_of_worker, views_of_worker in workers.call(
            "verify", numbers[0], self.last
        ).values():
            self.wrong.update(wrong_of_worker)
            for edge, is_view in views_of_worker.items():
                if (
                    self.views.get(edge, self.plan.expects_views) is self.plan.expects_views
                ):  # another value stays
                    self.views[edge] = is_view
        self.wrong.update(connection.check())
        if not is_timed and not self.warm_up.is_fixed:
            counted_before, self.counted = self.counted, self.count()
            if numbers[0] > 1:
                seconds = table.iteration(self.last)[1] - table.iteration(numbers[0])[0]
                self.warm_up.seconds.append(seconds / len(numbers))
                self.warm_up.faults.append(
                    (self.counted["faults"] - counted_before["faults"]) / len(numbers)
                )
        self.run.wrong_bytes, self.run.wrong_bytes_by_field = self.wrong.total(), dict(self.wrong)
        if numbers[0] == 1:
            # Views of a GPU's memory cannot be seen. The transport's own check of its data path stands for them.
            unseen_views = self.plan.expects_views and self.plan.device == "cuda"
            self.run.readers_own_a_copy = not unseen_views and all(
                is_view is False for is_view in self.views.values()
            )
        if self.wrong or numbers[0] == 1:
            self.report.write(self.plan.run_folder)

    def read_counters(self) -> None:
        """Set the costs of the timed iterations."""
        plan, workers, run = self.plan, self.workers, self.run
        counted = self.count()
        run.stored_bytes = counted["stored_bytes"] - self.counted["stored_bytes"]
        run.loopback_bytes = counted["loopback_bytes"] - self.counted["loopback_bytes"]
        # Spilled bytes are those of all iterations: spilling slows later ones too.
        run.spilled_bytes = counted["spilled_bytes"] - self.first_counted["spilled_bytes"]
        if workers.nodes:
            run.node_costs = workers.nodes.end()
        run.processes = costs_by_process(workers.call("costs"))
        if (
            not plan.options.address
        ):  # the processes of an existing cluster are not descendants of this one
            run.cpu_seconds = self.cpu_time.seconds
            if plan.transport.runtime.uses_ray:
                faults = counted["raylet_faults"] - self.counted["raylet_faults"]
                run.processes["raylet"] = ProcessCost(minor_faults=faults)
            use = self.cpu_time.machine_use()
            run.other_cores = use.other_cores
            run.idle_cores = use.idle_cores
            run.steal_cores = use.steal_cores
        for name, value in self.connection.facts().items():
            setattr(run, name, value)
        if plan.options.trace:
            set_spans(plan, workers, self.connection, self.report, self.last)

    def judge(self) -> None:
        """Set the status, and the reason if the run has failed."""
        plan, run, nodes = self.plan, self.run, self.workers.worker_nodes
        timed, failures = (
            range(self.workers.first_timed, self.last + 1),
            [find_failure(plan, self.wrong, self.views)],
        )
        for name, groups in self.groups.items():
            if collect := studies()[name].collect:
                measured, failure = load(name, collect)(plan, groups, self.workers.driver_seconds)
                failures.append(failure)
                run.measured[name] = msgspec.to_builtins(measured)
        run.reason = next(
            filter(None, [*failures, find_other_data_path(plan, run, nodes, timed)]), None
        )
        mark_requested_paths(plan, run, nodes, self.views)
        run.status = "failed" if run.reason else "ok"


def find_failure(
    plan: Plan, wrong: Mapping[str, int], views: Mapping[str, bool | None]
) -> str | None:
    """Return why the run has failed: wrong bytes, or an edge with another data path than expected; None if it is ok.

    `views` has for each edge whether its readers found views of shared memory; None: for some of the tensors.
    """
    if wrong:
        worst = max(wrong, key=lambda name: wrong[name])
        where = f", most of them in {worst}" if len(wrong) > 1 or "," in worst else ""
        return f"{sum(wrong.values())} bytes differ from what was sent{where}: this transport loses data"
    for edge in plan.task_flow.edges:
        may_be_copied = plan.expects_views and edge.bytes <= INLINED_BYTES
        if (
            plan.device == "cpu"
            and not may_be_copied
            and views[str(edge)] is not plan.expects_views
        ):
            return (f"{edge}: readers got {READ_AS[views[str(edge)]]}, but {READ_AS[plan.expects_views]} are expected "
                    f"of {plan.configuration.name}")  # fmt: skip
    return None


def costs_by_process(costs: Mapping[str, Mapping[str, Any]]) -> dict[str, ProcessCost]:
    """Return the costs by process. Workers that share a process are named together, and its memory counts once."""
    workers_by_pid: dict[int, list[str]] = {}
    for name, cost in costs.items():
        workers_by_pid.setdefault(cost["pid"], []).append(name)
    return {
        "+".join(names): ProcessCost(
            costs[names[-1]]["peak_memory_bytes"], costs[names[-1]]["minor_faults"]
        )
        for names in workers_by_pid.values()
    }


def set_spans(
    plan: Plan, workers: WorkerGroup, connection: Connection, report: DriverReport, last: int
) -> None:
    """--trace: set the spans of all processes in the timed iterations, or in the groups if iterations overlap."""
    from dataflow.trace.spans import collect_spans

    size = plan.options.group_size if plan.options.in_flight > 1 else 1
    times = [
        workers.driver.progress.iteration(number) for number in range(workers.first_timed, 1 + last)
    ]
    groups = [times[n : n + size] for n in range(0, len(times), size)]
    intervals = [(group[0][0], group[-1][1]) for group in groups]
    spans = workers.call("spans") | connection.spans()
    for name in plan.worker_names if workers.nodes else ():
        seconds = partial(workers.driver_seconds, name)
        spans[name] = [(thread, stage, seconds(start), seconds(end), faults)
                       for thread, stage, start, end, faults in spans[name]]  # fmt: skip
    report.run.iterations_us, report.run.spans = collect_spans(spans, intervals)
