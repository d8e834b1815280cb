"""Measure iterations: the timing loop, and what the workers do before and after it.

The clock runs only in `run_group`. The pools of payloads are made before it starts, and the messages are verified after
it has stopped. Whatever is done for each message is inside: the sequence number, --message packed, --copy-in.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean, median
from typing import Any

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.endpoints import tensors
from dataflow.endpoints.progress_table import ENDING, ITERATING
from dataflow.measure.data_path import find_missing_bytes, find_other_data_path, mark_requested_paths
from dataflow.measure.monitor import WorkerReport
from dataflow.measure.noise import CpuTime, OtherLoad, loopback_bytes, measure_resources
from dataflow.plan.options import MIN_TIMED_ITERATIONS, MIN_WARMUP_GROUPS
from dataflow.plan.plan import Plan
from dataflow.records.schema import ProcessCost, Run, Steps, Updates
from dataflow.studies.weights.parameters import WorkTimes
from dataflow.workers.worker_group import Connection, WorkerGroup

SETTLED_GROUPS = MIN_WARMUP_GROUPS // 2  # in the steady state, they take as long as as many before them
MAX_SETTLED_CHANGE = 0.1  # of their median time, and of the page faults that the next ones save
MIN_FAULTS = 100  # per iteration; fewer take less than 0.3 ms
MAX_WARMUP_SECONDS = 30
RESOURCE_READINGS = 20  # and one after the last iteration
READ_AS = {True: "views", False: "copies", None: "partly copies"}  # by whether readers found views of shared memory


def run_group(
    numbers: Sequence[int], in_flight: int, make_query: Callable[[int], Any], submit: Callable[[Any], Any],
    collect: Callable[[Any], Any], receive: Callable[[Any], Any], save_times: Callable[[int, float, float], Any],
    clock: Callable[[], float] = time.perf_counter,
) -> None:  # fmt: skip
    """Run these iterations with at most `in_flight` of them open, and save the number, start and end of each.

    The clock of an iteration starts before `make_query`, which writes the sequence number and packs or copies the
    query, and `submit`, which sends it. It stops after `receive`, which waits until the results are in the memory of
    the driver's device. So no time between the first query and the last result is outside of the clock.
    """

    def finish_oldest() -> None:
        number, start, token = open_iterations.popleft()
        receive(collect(token))
        save_times(number, start, clock())

    open_iterations: deque[tuple[int, float, Any]] = deque()
    for number in numbers:
        if len(open_iterations) == in_flight:
            finish_oldest()
        start = clock()
        open_iterations.append((number, start, submit(make_query(number))))
    while open_iterations:
        finish_oldest()


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
        self.settled = abs(new_seconds - old_seconds) <= MAX_SETTLED_CHANGE * old_seconds and not is_falling
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


def count_faults(workers: WorkerGroup) -> int:
    """Return the page faults of all workers and raylets so far; those of verifications are not counted."""
    costs = costs_by_process(workers.call("costs")).values()
    return sum(cost.minor_faults or 0 for cost in costs) + workers.raylet_faults()


def measure(plan: Plan, workers: WorkerGroup, connection: Connection, report: WorkerReport) -> None:
    """Run and verify all iterations, and set the fields of `report.run`. The times go to the progress table."""
    driver, table, run, options = workers.driver, workers.driver.progress, report.run, plan.options
    last, begin, cpu_time, warm_up = 0, time.monotonic(), CpuTime(), WarmUp(options.warmup is not None)
    other_load = OtherLoad(cpu_time)
    timed_updates: list[Mapping[str, WorkTimes]] = []
    wrong: Counter[str] = Counter()  # bytes by edge and field
    faults_so_far = 0
    views: dict[str, bool | None] = {}

    def make_query(number: int) -> Any:
        table.began(number)
        return driver.make_payload(number)

    def receive(results: Sequence[Any]) -> None:
        driver.receive(results)
        tensors.synchronise()

    # Stored bytes are counted over the timed iterations, spilled bytes over all, because spilling slows later ones too.
    stored_before, spilled_before = workers.store_counters()
    raylet_faults_before, loopback_before = workers.raylet_faults(), loopback_bytes()
    table.phase = ITERATING
    for numbers, is_timed in iteration_groups(plan, warm_up):
        if plan.token and numbers[0] > 1:
            plan.token.pass_round()
        is_first_timed = is_timed and not workers.first_timed
        if is_first_timed:
            workers.first_timed = numbers[0]
            run.warmup_iterations, run.settled = numbers[0] - 2, warm_up.settled
            report.write(plan.run_folder)
            workers.call("reset_costs")
            stored_before, _ = workers.store_counters()
            raylet_faults_before, loopback_before = workers.raylet_faults(), loopback_bytes()
            begin, cpu_time.seconds = time.monotonic(), 0.0
            if workers.nodes:
                workers.nodes.begin()
        is_over = options.duration and time.monotonic() - begin > options.duration
        if is_timed and is_over and numbers[0] >= workers.first_timed + MIN_TIMED_ITERATIONS:
            break
        done = numbers[0] - workers.first_timed
        if options.resources and is_timed and done >= len(run.resources) * options.iterations / RESOURCE_READINGS:
            run.resources.append(measure_resources(done))
        workers.first_iteration, last = numbers[0], numbers[-1]
        steps = (make_query, connection.submit, connection.collect, receive, table.ended)
        cpu_time.start()
        run_group(numbers, options.in_flight, *steps)
        cpu_time.stop()
        if plan.task_flow.has_parameters:
            update_times = workers.call("end_update", last)
            add_update(plan, run, update_times, is_timed)
            if is_timed:
                timed_updates.append(update_times)
        if plan.task_flow.has_compute:
            add_step(run, workers.call("end_update", last), is_timed)
        for wrong_of_worker, views_of_worker in workers.call("verify", numbers[0], last).values():
            wrong.update(wrong_of_worker)
            for edge, is_view in views_of_worker.items():
                if views.get(edge, plan.expects_views) is plan.expects_views:  # an unexpected value stays
                    views[edge] = is_view
        wrong.update(connection.check())
        if not is_timed and not warm_up.is_fixed:
            faults_so_far, faults_before = count_faults(workers), faults_so_far
            if numbers[0] > 1:
                warm_up.seconds.append((table.iteration(last)[1] - table.iteration(numbers[0])[0]) / len(numbers))
                warm_up.faults.append((faults_so_far - faults_before) / len(numbers))
        run.wrong_bytes, run.wrong_bytes_by_field = wrong.total(), dict(wrong)
        if numbers[0] == 1:
            # Views of a GPU's memory cannot be seen. The transport's own check of its data path stands for them.
            unseen_views = plan.expects_views and plan.device == "cuda"
            run.readers_own_a_copy = not unseen_views and all(is_view is False for is_view in views.values())
        if wrong or numbers[0] == 1:
            report.write(plan.run_folder)
    if options.resources:
        run.resources.append(measure_resources(options.iterations))
    table.phase = ENDING
    workers.call("release")  # what still holds a view could block the end of its transport
    run.wrong_bytes, run.wrong_bytes_by_field = wrong.total(), dict(wrong)
    run.loopback_bytes = loopback_bytes() - loopback_before
    stored_after, spilled_after = workers.store_counters()
    run.stored_bytes, run.spilled_bytes = stored_after - stored_before, spilled_after - spilled_before
    if workers.nodes:
        run.node_costs = workers.nodes.end()
    if run.updates:
        run.updates.transfer_seconds = [transfer_seconds(plan, t, workers.driver_seconds) for t in timed_updates]
    run.processes = costs_by_process(workers.call("costs"))
    if not options.address:  # the processes of an existing cluster are not descendants of this one
        run.cpu_seconds = cpu_time.seconds
        if plan.transport.runtime.uses_ray:
            run.processes["raylet"] = ProcessCost(minor_faults=workers.raylet_faults() - raylet_faults_before)
        if not plan.token:  # the other side of a paired measurement is no other program
            run.other_cores, run.steal_cores = other_load.stop()
    for name, value in connection.facts().items():
        setattr(run, name, value)
    if options.trace:
        set_spans(plan, workers, connection, report, last)
    run.reason = (
        find_failure(plan, wrong, views)
        or find_torn_reads(run)
        or find_other_data_path(plan, run, range(workers.first_timed, last + 1))
        or find_missing_bytes(plan, run.node_costs, workers.node_indices(), range(workers.first_timed, last + 1))
    )
    mark_requested_paths(plan, run, workers.node_indices(), views)
    run.status = "failed" if run.reason else "ok"


def find_failure(plan: Plan, wrong: Mapping[str, int], views: Mapping[str, bool | None]) -> str | None:
    """Return why the run has failed: wrong bytes, or an edge with another data path than expected; None if it is ok.

    `views` has for each edge whether its readers found views of shared memory; None: for some of the tensors.
    """
    if wrong:
        worst = max(wrong, key=lambda name: wrong[name])
        where = f", most of them in {worst}" if len(wrong) > 1 or "," in worst else ""
        return f"{sum(wrong.values())} bytes differ from what was sent{where}: this transport loses data"
    for edge in plan.task_flow.edges:
        may_be_copied = plan.expects_views and edge.bytes <= INLINED_BYTES
        if plan.device == "cpu" and not may_be_copied and views[str(edge)] is not plan.expects_views:
            return (f"{edge}: readers got {READ_AS[views[str(edge)]]}, but {READ_AS[plan.expects_views]} are expected "
                    f"of {plan.configuration.name}")  # fmt: skip
    return None


def actors_of_update(plan: Plan) -> tuple[list[str], list[str]]:
    """Return the workers that send parameters, and those that receive them."""
    flow, workers = plan.task_flow, plan.workers.items()
    edges = [edge for edge in flow.edges if edge.message.is_parameters]
    sending, receiving = {flow.actor(edge.source) for edge in edges}, {flow.actor(edge.reader) for edge in edges}
    senders = [name for name, worker in workers if worker.actor in sending]
    return senders, [name for name, worker in workers if worker.actor in receiving]


def add_update(plan: Plan, run: Run, times: Mapping[str, WorkTimes], is_timed: bool) -> None:
    """Add the parts of an update, which the actors measured, to the run."""
    run.updates = run.updates or Updates()
    senders, receivers = ([times[name] for name in names] for names in actors_of_update(plan))
    run.updates.reads = sum(receiver.reads for receiver in receivers)
    run.updates.torn_reads = sum(receiver.torn_reads for receiver in receivers)
    if is_timed:
        run.updates.publish_seconds.append(max(sender.last_end - sender.first_begin for sender in senders))
        run.updates.install_seconds.append(max(receiver.install_seconds for receiver in receivers))
        run.updates.stall_seconds.append(max(receiver.stall_seconds for receiver in receivers))


def transfer_seconds(
    plan: Plan, times: Mapping[str, WorkTimes], driver_seconds: Callable[[str, float], float]
) -> float:
    """Return the seconds from the first message of an update to the arrival of its last one, on the driver's clock."""
    senders, receivers = actors_of_update(plan)
    first_sent = min(driver_seconds(name, times[name].first_end) for name in senders)
    return max(driver_seconds(name, times[name].last_begin) for name in receivers) - first_sent


def add_step(run: Run, times: Mapping[str, WorkTimes], is_timed: bool) -> None:
    """Add the times of the stages of a pipeline, and the activations that they held, to the run."""
    stages = {name: stage for name, stage in times.items() if stage.compute_end}
    run.steps = run.steps or Steps()
    if is_timed:
        run.steps.compute_seconds.append(fmean(stage.compute_seconds for stage in stages.values()))
        run.steps.stage_seconds.append(max(stage.compute_end - stage.compute_begin for stage in stages.values()))
    for name, stage in stages.items():
        held = max(stage.held_activations, run.steps.held_activations.get(name, 0))
        run.steps.held_activations[name] = held


def find_torn_reads(run: Run) -> str | None:
    """Return how many reads of served parameters found two versions; None if no read did."""
    if not run.updates or not run.updates.torn_reads:
        return None
    return (f"{run.updates.torn_reads} of {run.updates.reads} reads of served parameters found two versions: this "
            "transport writes into memory that is still read: give --copy-out")  # fmt: skip


def costs_by_process(costs: Mapping[str, Mapping[str, Any]]) -> dict[str, ProcessCost]:
    """Return the costs by process. Workers that share a process are named together, and its memory counts once."""
    workers_by_pid: dict[int, list[str]] = {}
    for name, cost in costs.items():
        workers_by_pid.setdefault(cost["pid"], []).append(name)
    return {
        "+".join(names): ProcessCost(
            peak_memory_bytes=max(costs[name]["peak_memory_bytes"] for name in names),
            minor_faults=max(costs[name]["minor_faults"] for name in names),
        )
        for names in workers_by_pid.values()
    }


def set_spans(plan: Plan, workers: WorkerGroup, connection: Connection, report: WorkerReport, last: int) -> None:
    """--trace: set the spans of all processes in the timed iterations, or in the groups if iterations overlap."""
    from dataflow.trace.spans import collect_spans

    size = plan.options.group_size if plan.options.in_flight > 1 else 1
    times = [workers.driver.progress.iteration(number) for number in range(workers.first_timed, 1 + last)]
    groups = [times[n : n + size] for n in range(0, len(times), size)]
    intervals = [(group[0][0], group[-1][1]) for group in groups]
    spans = workers.call("spans") | connection.spans()
    for name in plan.workers if workers.nodes else ():
        seconds = partial(workers.driver_seconds, name)
        spans[name] = [(thread, stage, seconds(start), seconds(end), faults)
                       for thread, stage, start, end, faults in spans[name]]  # fmt: skip
    actors = {name: worker.actor for name, worker in plan.workers.items()}
    report.run.iterations_us, report.run.spans = collect_spans(spans, intervals, plan.requested_flow, actors)
