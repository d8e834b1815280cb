"""Measure iterations: a first one, a warm-up until times and page faults settle, and the timed ones.

The clock runs only in `time_group`. The pools of payloads are made before it starts; the messages are verified after
it has stopped. Whatever is done for each message is inside: the sequence number, --message packed, --copy-in.
"""

import time
from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from dataflow.study import load, studies
from dataflow.trace.spans import Recorded, collect_spans
from dataflow.workers.worker_group import Connection, WorkerGroup

# By whether readers found views of shared memory.
READ_AS = {True: "views", False: "copies", None: "partly copies"}
# In the steady state, they take as long as as many before them.
SETTLED_GROUPS = MIN_WARMUP_GROUPS // 2
MAX_SETTLED_CHANGE = 0.1  # of their median time, and of the page faults that the next ones save
MIN_FAULTS = 100  # per iteration; fewer take less than 0.3 ms
MAX_WARMUP_SECONDS = 30


class WarmUp:
    """Decide when the warm-up is over: after a fixed number of iterations, or when times and page faults settle."""

    def __init__(self, is_fixed: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_fixed = is_fixed
        self.clock = clock
        self.begin = clock()
        self.seconds: list[float] = []  # per iteration of each group
        self.faults: list[float] = []  # page faults per iteration of each group
        self.settled: bool | None = None  # None: unknown, because the number is fixed

    def is_over(self) -> bool:
        if self.is_fixed:
            return False
        has_enough = len(self.seconds) >= 2 * SETTLED_GROUPS
        self.settled = has_enough and self._has_settled()
        if self.settled or not has_enough:
            return self.settled
        return self.clock() - self.begin > MAX_WARMUP_SECONDS

    def _has_settled(self) -> bool:
        """Return whether the last groups took as long as those before them, and saved no page faults."""
        before = slice(-2 * SETTLED_GROUPS, -SETTLED_GROUPS)
        last = slice(-SETTLED_GROUPS, None)
        old_seconds = median(self.seconds[before])
        new_seconds = median(self.seconds[last])
        old_faults = fmean(self.faults[before])
        new_faults = fmean(self.faults[last])
        saved_faults = old_faults - new_faults
        max_saved_faults = max(MAX_SETTLED_CHANGE * old_faults, MIN_FAULTS)
        change = abs(new_seconds - old_seconds)
        max_change = MAX_SETTLED_CHANGE * old_seconds
        return change <= max_change and saved_faults <= max_saved_faults


def iteration_groups(plan: Plan, warm_up: WarmUp) -> Iterator[tuple[range, bool]]:
    """Yield the iterations between two verifications: the first one alone, then the warm-up, then the timed ones.

    The second value is whether they are timed.
    """
    yield range(1, 2), False
    options = plan.options
    number = 2
    stop = number + plan.max_warmup
    while not warm_up.is_over() and number < stop:
        end = min(number + options.in_flight, stop)
        yield range(number, end), False
        number = end
    stop = number + options.iterations
    size = options.group_size
    for first in range(number, stop, size):
        end = min(first + size, stop)
        yield range(first, end), True


@dataclass(frozen=True)
class Counts:
    """What Ray, the page tables of all processes and the loopback interface have counted so far."""

    stored_bytes: int  # taken in by the object stores
    spilled_bytes: int  # written to disk by them
    raylet_faults: int  # page faults of private raylets
    faults: int  # page faults of all processes, without those of verifications
    loopback_bytes: int  # received by the loopback interface


class Measurement:
    """Run and verify all iterations, and set the fields of `report.run`. The times go to the progress table."""

    def __init__(
        self, plan: Plan, workers: WorkerGroup, connection: Connection, report: DriverReport
    ) -> None:
        self.plan = plan
        self.workers = workers
        self.connection = connection
        self.report = report
        self.run = report.run
        self.table = workers.driver.progress
        self.warm_up = WarmUp(plan.options.warmup is not None)
        self.last = 0  # the iteration that was verified last
        self.cpu_time = CpuTime()
        self.wrong: Counter[str] = Counter()  # bytes by edge and field
        self.views: dict[str, bool | None] = {}
        # What the parts of each study have measured: by worker, for each group, and whether it was timed.
        self.groups: dict[str, list[tuple[dict[str, Any], bool]]] = {}
        for part in plan.parts:
            self.groups[part] = []
        self.counted = self.count()
        self.first_counted = self.counted

    def count(self) -> Counts:
        counters = self.workers.counters()
        faults = counters["raylet_faults"]
        for cost in self.costs_by_process().values():
            faults += cost.minor_faults or 0
        interfaces = psutil.net_io_counters(pernic=True)
        loopback_bytes = interfaces["lo"].bytes_recv
        return Counts(**counters, faults=faults, loopback_bytes=loopback_bytes)

    def costs_by_process(self) -> dict[str, ProcessCost]:
        """Ask all workers, and return what each of their processes has used, by the names of its workers."""
        costs = self.workers.call("costs")
        return costs_by_process(costs, self.workers.worker_nodes)

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
        self.run.unsent_wrong_bytes = dict(
            ChainMap(*self.workers.call("try_on_unsent_memory").values())
        )
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
        self.workers.first_iteration = numbers[0]
        self.last = numbers[-1]
        in_flight = self.plan.options.in_flight
        save_times = self.table.ended
        self.cpu_time.start()
        time_group(numbers, in_flight, self.send, self.receive, save_times)
        self.cpu_time.stop()
        self.end_group(is_timed)
        self.verify(numbers[0])
        if not is_timed and not self.warm_up.is_fixed:
            self.note_warm_up(numbers)
        self.run.wrong_bytes = self.wrong.total()
        self.run.wrong_bytes_by_field = dict(self.wrong)
        is_first = numbers[0] == 1
        if is_first:
            self.note_views()
        if self.wrong or is_first:
            self.report.write(self.plan.run_folder)

    def end_group(self, is_timed: bool) -> None:
        """Let the workers change their parameters, and keep what the parts of studies have measured."""
        if not self.plan.parts and not self.plan.task_flow.has_parameters:
            return
        measured = self.workers.call("end_group", self.last)
        for name, groups in self.groups.items():
            of_part = {}
            for worker, by_part in measured.items():
                of_part[worker] = by_part[name]
            groups.append((of_part, is_timed))

    def verify(self, first: int) -> None:
        """Verify the messages from this iteration to the last one, and note which edges had views."""
        expected = self.plan.expects_views
        verified = self.workers.call("verify", first, self.last)
        for wrong_of_worker, views_of_worker in verified.values():
            self.wrong.update(wrong_of_worker)
            for edge, is_view in views_of_worker.items():
                # Once an edge had another data path than expected, that stays.
                earlier = self.views.get(edge, expected)
                if earlier is expected:
                    self.views[edge] = is_view
        wrong_of_transport = self.connection.check()
        self.wrong.update(wrong_of_transport)

    def note_warm_up(self, numbers: range) -> None:
        """Tell the warm-up how long these iterations took, and how many page faults they had."""
        earlier = self.counted
        self.counted = self.count()
        first, count = numbers[0], len(numbers)
        if first == 1:
            return
        begin, end = self.table.interval(first, self.last)
        seconds = end - begin
        faults = self.counted.faults - earlier.faults
        self.warm_up.seconds.append(seconds / count)
        self.warm_up.faults.append(faults / count)

    def note_views(self) -> None:
        """Set whether readers own a copy, as the first verification found."""
        # Views of a GPU's memory cannot be seen. The transport's own check of its data path stands for them.
        is_on_gpu = self.plan.device == "cuda"
        has_unseen_views = is_on_gpu and self.plan.expects_views
        found = set(self.views.values())
        has_only_copies = found <= {False}
        self.run.readers_own_a_copy = has_only_copies and not has_unseen_views

    def read_counters(self) -> None:
        """Set the costs of the timed iterations."""
        run = self.run
        begin, end = self.counted, self.count()
        run.stored_bytes = end.stored_bytes - begin.stored_bytes
        run.loopback_bytes = end.loopback_bytes - begin.loopback_bytes
        # Spilled bytes are those of all iterations: spilling slows later ones too.
        run.spilled_bytes = end.spilled_bytes - self.first_counted.spilled_bytes
        if self.workers.nodes:
            run.node_costs = self.workers.nodes.end()
        run.processes = self.costs_by_process()
        # The processes of an existing cluster are not descendants of this one.
        if not self.plan.options.address:
            raylet_faults = end.raylet_faults - begin.raylet_faults
            self.set_machine_use(raylet_faults)
        facts = self.connection.facts()
        for field, value in facts.items():
            setattr(run, field, value)
        if self.plan.options.trace:
            self.set_spans()

    def set_machine_use(self, raylet_faults: int) -> None:
        """Set what this run and other programs have used of the machine."""
        run = self.run
        run.cpu_seconds = self.cpu_time.seconds
        if self.plan.transport.runtime.uses_ray:
            run.processes["raylet"] = ProcessCost(minor_faults=raylet_faults)
        use = self.cpu_time.machine_use()
        run.other_cores = use.other_cores
        run.idle_cores = use.idle_cores
        run.steal_cores = use.steal_cores

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
        plan, run = self.plan, self.run
        nodes = self.workers.worker_nodes
        timed = self.timed_numbers()
        failures = [
            find_failure(plan, self.wrong, self.views),
            *self.collect_studies(),
            find_other_data_path(plan, run, nodes, timed),
        ]
        run.reason = next(filter(None, failures), None)
        run.status = "failed" if run.reason else "ok"
        mark_requested_paths(plan, run, nodes, self.views)

    def collect_studies(self) -> list[str | None]:
        """Set what the studies have measured, and return why each of them says that the run has failed, if it has."""
        failures = []
        for name, groups in self.groups.items():
            function = studies()[name].collect
            if function:
                collect = load(name, function)
                measured, failure = collect(self.plan, groups, self.workers.driver_seconds)
                self.run.measured[name] = msgspec.to_builtins(measured)
                failures.append(failure)
        return failures


def find_failure(
    plan: Plan, wrong: Mapping[str, int], views: Mapping[str, bool | None]
) -> str | None:
    """Return why the run has failed: wrong bytes, or an edge with another data path than expected; None if it is ok.

    `views` has for each edge whether its readers found views of shared memory; None: for some of the tensors.
    """
    if wrong:
        total = sum(wrong.values())
        worst = max(wrong, key=lambda name: wrong[name])
        has_parts = len(wrong) > 1 or "," in worst
        where = f", most of them in {worst}" if has_parts else ""
        return f"{total} bytes differ from what was sent{where}: this transport loses data"
    expected = plan.expects_views
    if plan.device != "cpu":
        return None
    for edge in plan.task_flow.edges:
        is_view = views[str(edge)]
        may_be_copied = expected and edge.bytes <= INLINED_BYTES
        if is_view is not expected and not may_be_copied:
            found = READ_AS[is_view]
            name = plan.configuration.name
            return f"{edge}: readers got {found}, but {READ_AS[expected]} are expected of {name}"
    return None


def costs_by_process(
    costs: Mapping[str, Mapping[str, Any]], nodes: Mapping[str, int]
) -> dict[str, ProcessCost]:
    """Return the costs by process. Workers that share a process are named together, and its memory counts once.

    costs: what `Endpoint.costs` returns, by worker. nodes: the node of each worker; two nodes can have equal process
    ids.
    """
    workers_by_process: dict[tuple[int, int], list[str]] = {}
    for name, cost in costs.items():
        process = (nodes[name], cost["pid"])
        workers_by_process.setdefault(process, []).append(name)
    by_process = {}
    for names in workers_by_process.values():
        cost = costs[names[-1]]
        by_process["+".join(names)] = ProcessCost(
            peak_memory_bytes=cost["peak_memory_bytes"],
            minor_faults=cost["minor_faults"],
        )
    return by_process


def move_spans(
    spans: Sequence[Recorded], driver_seconds: Callable[[float], float]
) -> list[Recorded]:
    """Return a worker's spans with times of the driver's clock."""
    moved = []
    for thread, stage, start, end, faults in spans:
        moved.append((thread, stage, driver_seconds(start), driver_seconds(end), faults))
    return moved
