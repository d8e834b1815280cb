"""Compute what tables, charts and comparisons show of a configuration and its runs, and whether it can be trusted."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import Any

import numpy as np

from dataflow.analysis.statistics import MIN_RUNS, Summary, summarise, typical_seconds
from dataflow.catalogue.catalogue import TRANSPORTS, VARIANTS, Transport, Variant, producer_writes_in_place
from dataflow.errors import RecordError
from dataflow.flows.catalogue import FLOWS_OF_FIELDS, build_flow
from dataflow.flows.changes import with_dataset, with_proxy_actor
from dataflow.flows.flow import DATASET, DRIVER, PROXY, Flow, Task
from dataflow.flows.message import flat_message
from dataflow.plan.options import FORMS, options_of
from dataflow.plan.plan import Crossings, make_workers
from dataflow.records.schema import Record, Run, Workload, record_edges
from dataflow.units import format_bytes

MAX_OTHER_CORES = 0.3  # that other programs use during a run; the times of a run with more are disturbed
MAX_STEAL_CORES = 0.1  # that the hypervisor takes, for other virtual machines
DISTURBED, NOT_SETTLED = "disturbed", "not settled"  # statuses: runs are ok, but none of them has a time that counts
UNCOUNTED = (DISTURBED, NOT_SETTLED)
MAX_DRIFT = 0.3  # of the fastest memcpy pass, from before to after the iterations
MIN_DRIFT_SECONDS = 0.01  # of that pass: messages that fit into caches are copied up to twice as fast at times
MAX_THROTTLED = 0.05  # of the time of the iterations
MAX_OVERHEAD = 0.05  # of the benchmark itself, of an iteration
MAX_CLOCK_ERROR = 0.05  # of a time that begins on one node and ends on another
MIN_SHARE = 0.9  # of the memcpy time, which was measured at another time, for readers that own a copy


class Result:
    """A configuration with all its runs, from at least one record; RecordError if the transport is unknown.

    The shown runs are the ok ones that were neither disturbed (without --allow-disturbed) nor left their warm-up before
    their times had settled. If no run is ok, they are the failed ones; if there are none, the skipped ones.
    `peers` are the results of its table. Those with equal messages and as many threads share their reference times, so
    that multiples of them can be compared.
    """

    def __init__(self, records: Sequence[Record], peers: Sequence["Result"] = ()) -> None:
        self.records, self.record = tuple(records), records[0]
        self.workload, self.configuration = self.record.workload, self.record.configuration
        self.table, self.traced, self.name = self.record.table, self.record.traced, self.configuration.name
        transport = f"{self.configuration.runtime} {self.configuration.transport}"
        if transport not in TRANSPORTS:
            raise RecordError(f"this version has no transport {transport}: leave its record out")
        self.transport: Transport = TRANSPORTS[transport]
        flags = self.configuration.flags
        self.variant = _find_variant(self.transport, flags)
        self.in_flight, self.threads = flags.get("in_flight", 1), flags.get("threads", 1)
        # Iterations between two full verifications, which are timed as one group.
        self.check_every = options_of(self.workload.flow, flags).group_size
        self.runs = [run for record in records for run in record.runs]
        self.paired = any(run.pair for run in self.runs)
        self.allows_disturbed = all(record.arguments.get("allow_disturbed") for record in records)
        self.ok_runs = [run for run in self.runs if run.status == "ok"]
        self.best_status, self.shown_runs = self._choose_runs()
        self.seconds = [seconds for run in self.shown_runs for seconds in run.seconds]
        self.run_seconds = [self.seconds_of(run) for run in self.shown_runs if run.seconds]
        self.first_seconds = [run.first_seconds for run in self.shown_runs if run.first_seconds]
        self.readers_own_a_copy = next((run.readers_own_a_copy for run in self.ok_runs), None)
        self.spilled_bytes = sum(run.spilled_bytes for run in self.shown_runs)
        self.wrong_bytes = sum(run.wrong_bytes for run in self.runs)  # an ok run does not make up for a wrong one
        # References of a form that changes the bytes are copies of what is sent.
        alike = [r for r in peers or [self] if r._copied == self._copied and not FORMS.get(r.workload.message)]
        runs = [run for result in alike for run in result.quiet_runs]
        self.memcpy_seconds = _median(run.memcpy_before_seconds + run.memcpy_after_seconds for run in runs)
        self.cold_copy_seconds = _median(run.cold_copy_before_seconds + run.cold_copy_after_seconds for run in runs)
        self.null_seconds = _median(run.null_transport_seconds for run in self.shown_runs)
        self.pipe_seconds = _median(run.pipe_before_seconds + run.pipe_after_seconds for run in self.quiet_runs)
        measured = [record for record in records if any(run.status == "ok" for run in record.runs)]  # others have none
        self.environments: list[dict[str, Any]] = [record.environments.get("0", {}) for record in measured]

    def _choose_runs(self) -> tuple[str, list[Run]]:
        """Return the status, and the runs whose times are shown."""
        if not self.ok_runs:
            failed = [run for run in self.runs if run.status == "failed"]
            return ("failed", failed) if failed else ("skipped", self.runs)
        quiet = [run for run in self.quiet_runs if run.status == "ok"]
        settled = [run for run in quiet if run.settled is not False]
        if settled:
            return "ok", settled
        return NOT_SETTLED if quiet else DISTURBED, []

    @property
    def quiet_runs(self) -> list[Run]:
        """Return the runs that were not disturbed, or all with --allow-disturbed."""
        return [run for run in self.runs if self.allows_disturbed or not find_disturbance(run)]

    @property
    def _copied(self) -> tuple[Any, ...]:
        """Return what is equal for results with equal reference times."""
        return self.threads, self.workload.edges

    @property
    def label(self) -> str:
        """Return the name with the flags for message form, layout and device, as on the command line."""
        form, sizes, layout = self.workload.message, self.workload.sizes, self.configuration.layout
        bucket_size = int(sizes.get("bucket_size") or 0)
        plain_fields = form == "fields" and not sizes.get("as_sent") and "fields" not in sizes
        flags = {
            f"--message {form}": form not in ("flat", "fields"),
            "--as-sent": sizes.get("as_sent"),
            f"--fields {sizes.get('fields')}": "fields" in sizes,
            f"--bucket-size {format_bytes(bucket_size).replace(' ', '')}": bucket_size,
            f"--items {sizes.get('items')}": "items" in sizes,
            f"--schedule {sizes.get('schedule')}": "schedule" in sizes,
            "--message fields": plain_fields and self.workload.flow in FLOWS_OF_FIELDS,  # others always have fields
            "--address": layout.existing_cluster,
            "--placement spread": layout.placement == "spread" and not layout.place,
            f"--place {layout.place}": layout.place,
            f"--link '{layout.link}'": layout.link,
            "--device cuda": self.configuration.device == "cuda",
        }
        return " ".join([self.name, *(flag for flag, is_set in flags.items() if is_set)])

    @property
    def producer_writes_in_place(self) -> bool:
        """Return whether the producer's copy is outside of the clock. A packed message is always copied inside."""
        is_packed = self.workload.message == "packed"
        return producer_writes_in_place(self.transport, self.configuration.flags) and not is_packed

    @cached_property
    def flow(self) -> Flow:
        """Return the flow as its user draws it: from the catalogue if it has the record's edges, else from the edges.

        A flow in a file is never executed, because the file may have changed.
        """
        workload = self.workload
        with suppress(TypeError, ValueError):  # a flow of another version
            if ".py:" not in workload.flow:
                message = None if workload.message == "flat" else workload.message
                # Records of earlier versions have `chain`, which is False.
                sizes = {name: size for name, size in workload.sizes.items() if size or name != "chain"}
                flow = build_flow(workload.flow, sizes, message)
                if record_edges(flow) == workload.edges:
                    return flow
        return _flow_from_edges(workload)

    def copy_seconds(self, run: Run, reduce: Callable[[Sequence[float]], float]) -> float | None:
        """Return the least time that copies of all messages took in a run: by all cores if actors can copy at once."""
        passes = [run.memcpy_before_seconds + run.memcpy_after_seconds]
        if len(self.flow.edges) > self.flow.path_length(max) and not self.transport.requirements.single_process:
            passes.append(run.memcpy_all_cores_seconds)
        return min((float(reduce(seconds)) for seconds in passes if seconds), default=None)

    @cached_property
    def _impossible(self) -> str | None:
        """Return why readers that own a copy cannot have got it in so little time; None if they can.

        As the machine may have been slower while the memcpy time of one run was measured, every run must be too fast,
        and there must be MIN_RUNS. Several readers that copy a message at once may read it from memory only once.
        """
        written = sum(edge.bytes for edge in self.flow.edges)
        read = sum(edge.bytes for edge in {edge.source: edge for edge in self.flow.edges}.values())
        runs = self.shown_runs
        if len(runs) < MIN_RUNS or not all(run.readers_own_a_copy and run.seconds for run in runs):
            return None
        bounds = [(self.copy_seconds(run, min) or 0) * (read + written) / (2 * written) for run in runs]
        share = max(np.median(run.seconds) / bound if bound else 1 for run, bound in zip(runs, bounds, strict=True))
        if share >= MIN_SHARE:
            return None
        return (f"in each of {len(runs)} runs the median iteration took less time than the fastest memcpy of its "
                f"bytes, by {1 - share:.0%} or more: find out which bytes were not copied")  # fmt: skip

    @property
    def status(self) -> str:
        """Return the status of the shown runs, or "impossible" if they took less time than copies of their bytes."""
        return "impossible" if self._impossible else self.best_status

    @property
    def failure(self) -> str | None:
        """Return why the times are impossible, or how many runs are not ok and the reason of the first; else None."""
        if self._impossible:
            return f"impossible: {self._impossible}"
        if self.best_status == DISTURBED:
            return (f"{DISTURBED}: none of {len(self.ok_runs)} runs counts, as {find_disturbance(self.ok_runs[0])}: "
                    "measure again on an idle machine, or with --allow-disturbed")  # fmt: skip
        if self.best_status == NOT_SETTLED:
            return (f"{NOT_SETTLED}: after {self.ok_runs[-1].warmup_iterations} untimed iterations, the times still "
                    "changed or the page faults still fell: give --warmup a larger number")  # fmt: skip
        others = [run for run in self.runs if run.status != "ok"]
        if not others:
            return None
        count = f"{len(others)} of {len(self.runs)} runs " if self.status == "ok" else ""
        return f"{count}{others[0].status}: {others[0].reason}"

    def seconds_of(self, run: Run) -> float:
        """Return a run's median time per iteration, in seconds."""
        return float(np.median(self._group_means(run)))

    def _group_means(self, run: Run) -> list[float]:
        """Return the time per iteration of each group of a run, in seconds: the time of the group divided by its size.

        Without --check-every and --in-flight, each iteration is a group. The estimator does not depend on the number
        of iterations in flight, but on --check-every: one slow iteration changes the mean of its group.
        """
        if not run.group_seconds:
            return run.seconds
        sizes = [self.check_every] * len(run.group_seconds)
        sizes[-1] = len(run.seconds) - sum(sizes[:-1])  # the last group can be smaller
        return [seconds / size for seconds, size in zip(run.group_seconds, sizes, strict=True)]

    @property
    def traced_runs(self) -> list[Run]:
        return [run for run in self.shown_runs if run.spans]

    @cached_property
    def typical_seconds(self) -> float:
        """Return the time per iteration of this configuration: the geometric mean of its runs' medians of groups."""
        return typical_seconds(self.run_seconds)

    @cached_property
    def summary(self) -> Summary:
        """Return the statistics of the times per iteration: of single iterations, or of groups if several overlap.

        The latency of one of several iterations in flight includes the wait for those before it, so it is larger than
        the time per iteration.
        """
        if self.in_flight == 1:
            return summarise(self.seconds)
        return summarise([mean for run in self.shown_runs for mean in self._group_means(run)])

    @property
    def times_memcpy(self) -> float | None:
        """Return time / memcpy time; None for views, because they copy nothing."""
        return self._multiple_of(self.memcpy_seconds) if self.readers_own_a_copy else None

    @property
    def times_cold_copy(self) -> float | None:
        return self._multiple_of(self.cold_copy_seconds) if self.readers_own_a_copy else None

    @property
    def times_pipe(self) -> float | None:
        return self._multiple_of(self.pipe_seconds)

    @cached_property
    def link_seconds(self) -> float | None:
        """Return the time of the messages between nodes by plain TCP; None if all actors are on one node."""
        complete = [run for run in self.shown_runs if run.links and run.nodes]  # failed runs do not name the nodes
        return _median([_link_seconds(run, self.crossings(run), self.in_flight > 1)] for run in complete)

    def crossings(self, run: Run) -> Crossings:
        """Return the messages that crossed between the nodes of a run."""
        flow, flags = self.flow, self.configuration.flags
        change = FORMS.get(self.workload.message)
        if change:
            flow = change(flow)
        if PROXY in run.nodes:
            flow = with_proxy_actor(flow)
        elif DATASET in run.nodes:
            flow = with_dataset(flow)
        options = options_of(self.workload.flow, flags)
        workers = make_workers(flow.actors, options.process_counts)
        return Crossings(flow, workers, run.nodes, self.transport.once_per_node)

    @property
    def clock_error_seconds(self) -> float:
        """Return the largest error of a time between two nodes. The driver's node has the driver's clock."""
        errors = [[cost.clock_error_seconds for node, cost in run.node_costs.items() if node != "0"]
                  for run in self.shown_runs]  # fmt: skip
        return max((sum(sorted(of_run)[-2:]) for of_run in errors), default=0.0)

    def is_within_clock_error(self, seconds: float) -> bool:
        """Return whether a time between processes is too short for the clocks of its nodes."""
        return self.clock_error_seconds > MAX_CLOCK_ERROR * abs(seconds)

    @property
    def times_link(self) -> float | None:
        return self._multiple_of(self.link_seconds)

    def _multiple_of(self, reference_seconds: float | None) -> float | None:
        return self.typical_seconds / reference_seconds if reference_seconds else None

    @property
    def peak_memory_bytes(self) -> int:
        """Return the largest sum over the processes of a run."""
        sums = [sum(cost.peak_memory_bytes or 0 for cost in run.processes.values()) for run in self.shown_runs]
        return max(sums, default=0)

    @property
    def faults_per_iteration(self) -> float | None:
        """Return the page faults of all processes together; None if they are unknown."""
        counts = [cost.minor_faults for run in self.shown_runs for cost in run.processes.values()]
        return None if None in counts or not counts else sum(filter(None, counts)) / len(self.seconds)

    @property
    def cpu_seconds_per_iteration(self) -> float | None:
        """Return the CPU time of all processes together; None if it is unknown for a run."""
        seconds = [run.cpu_seconds for run in self.shown_runs if run.cpu_seconds is not None]
        return sum(seconds) / len(self.seconds) if len(seconds) == len(self.shown_runs) else None

    @property
    def overhead_share(self) -> float | None:
        """Return the time of the null transport divided by the time per iteration: the share of the benchmark itself.

        None for records of older versions: they had a part of this work and the time to free memory in one number.
        """
        return self.null_seconds / self.typical_seconds if self.null_seconds else None

    @property
    def stored_bytes_per_iteration(self) -> float:
        return sum(run.stored_bytes for run in self.shown_runs) / len(self.seconds)


def _link_seconds(run: Run, crossings: Crossings, overlap: bool) -> float:
    """Return the time per iteration of the messages between nodes by plain TCP, the mean over the replicas.

    The faster number of connections of each link counts. If iterations overlap, it is the time of the node that sends
    longest. Otherwise it is the time until the driver has all results: a task sends when it has all its inputs, and a
    node sends one message at a time.
    """
    flow = crossings.flow
    byte_seconds: dict[tuple[int, int], float] = {}
    for link in run.links:
        pair, seconds = (link.source, link.reader), float(np.median(link.seconds)) / link.bytes
        byte_seconds[pair] = min(seconds, byte_seconds.get(pair, seconds))
    reads = {DRIVER: flow.returns} | {task.name: task.reads for task in flow.tasks}
    times, busy = [], defaultdict[int, float](float)  # node -> seconds for which it sends
    for number in range(1, 1 + crossings.period):
        messages = crossings.messages(number)
        ready = defaultdict[str, float](float)  # reader -> when it has all its inputs
        sent = defaultdict[int, float](float)  # node -> when it has sent its last message so far
        for source in reads:
            arrivals = [(reader, ready[source]) for reader, sources in reads.items() if source in sources]
            for edges, sender, node in messages:
                if edges[0].source == source:
                    seconds = byte_seconds.get((sender, node), 0.0) * edges[0].bytes
                    sent[sender] = max(ready[source], sent[sender]) + seconds
                    busy[sender] += seconds
                    arrivals += [(edge.reader, sent[sender]) for edge in edges]
            for reader, seconds in arrivals:
                ready[reader] = max(ready[reader], seconds)
        times.append(ready[DRIVER])
    return max(busy.values(), default=0.0) / crossings.period if overlap else fmean(times)


def _flow_from_edges(workload: Workload) -> Flow:
    """Return a flow of flat messages with the edges of a record."""
    messages = {edge.source: flat_message(edge.bytes) for edge in workload.edges}
    reads: dict[str, tuple[str, ...]] = {}
    for edge in workload.edges:
        reads[edge.reader] = (*reads.get(edge.reader, ()), edge.source)
    returns = reads.pop(DRIVER)
    tasks = tuple(Task(reader, sources, messages[reader]) for reader, sources in reads.items())
    return Flow(workload.flow, workload.flow, messages[DRIVER], tasks, returns)


def group_results(records: Iterable[Record]) -> list[Result]:
    """Return the results in the order of the catalogue. Flags that are not in it follow their transport.

    Records with equal table, workload and configuration are one result; traced and paired ones are apart.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record.runs:
            paired = any(run.pair for run in record.runs)
            key = (record.table, record.workload, record.configuration, record.traced, paired)
            groups.setdefault(key, []).append(record)
    return sorted(map(Result, groups.values()), key=_catalogue_position)


def _catalogue_position(result: Result) -> tuple[int, str]:
    variant = result.variant or _find_variant(result.transport, {})
    return VARIANTS.index(variant) if variant else len(VARIANTS), result.label


def _find_variant(transport: Transport, flags: Mapping[str, Any]) -> Variant | None:
    return next((variant for variant in VARIANTS if variant.transport == transport and variant.flags == flags), None)


def with_shared_references(results: Sequence[Result]) -> list[Result]:
    """Return the results of a table with shared reference times."""
    return [Result(result.records, results) for result in results]


def _median(samples: Iterable[Sequence[float]]) -> float | None:
    """Return the median of the samples of all runs together; None if there are none."""
    values = [*chain(*samples)]
    return float(np.median(values)) if values else None


def timed_seconds(run: Run) -> float:
    """Return the wall-clock time of a run's timed iterations: of each group from its first query to its last result."""
    return sum(run.group_seconds or run.seconds)


def find_disturbance(run: Run) -> str | None:
    """Return what disturbed a run so much that its times do not count; None if nothing did."""
    if (run.other_cores or 0) > MAX_OTHER_CORES:
        return f"other programs used {run.other_cores:.1f} cores"
    stolen = max([run.steal_cores, *(cost.steal_cores for cost in run.node_costs.values())])
    return f"the hypervisor took {stolen:.1f} cores" if stolen > MAX_STEAL_CORES else None


def _warnings_of(run: Run) -> list[str]:
    """Return a line for each problem of the machine during a run, with what to do."""
    lines = []
    if disturbance := find_disturbance(run):
        lines.append(f"{disturbance} during the run: close other programs, and repeat it with --runs 5")
    if (run.throttled_seconds or 0) > MAX_THROTTLED * timed_seconds(run):
        lines.append(f"a CPU limit stopped the container for {run.throttled_seconds:.1f} s: raise the limit")
    before, after = (min(samples, default=0) for samples in (run.memcpy_before_seconds, run.memcpy_after_seconds))
    if min(before, after) > MIN_DRIFT_SECONDS and max(before / after, after / before) > 1 + MAX_DRIFT:
        lines.append(f"the memcpy time changed from {before * 1e3:.3g} to {after * 1e3:.3g} ms during the run, so the "
                     "speed of the machine changed: repeat it with --runs 5")  # fmt: skip
    return lines


def warnings(result: Result) -> list[str]:
    """Return what limits the trust in a result, one line each, with what to do. Empty if nothing was timed."""
    lines = [line for run in result.runs if run.seconds for line in _warnings_of(run)]
    if not result.seconds:
        return [*lines, str(result.failure)] if result.status == NOT_SETTLED else lines
    if result.spilled_bytes:
        lines.append(f"{format_bytes(result.spilled_bytes)} were spilled to disk, so iterations were slower: raise "
                     "--object-store-bytes")  # fmt: skip
    if (result.overhead_share or 0) > MAX_OVERHEAD:
        lines.append(f"{result.overhead_share:.1%} of an iteration is the benchmark's own work (as over a null "
                     "transport): the transport itself is faster")  # fmt: skip
    bounds = [result.copy_seconds(run, np.median) for run in result.shown_runs if run.seconds]
    shares = [seconds / bound for seconds, bound in zip(result.run_seconds, bounds, strict=True) if bound]
    if result.readers_own_a_copy and min(shares, default=1) < MIN_SHARE:
        lines.append(f"the median iteration of a run takes {min(shares):.2f} times the memcpy time of the same run: "
                     "the machine was slower while memcpy was measured, or one copy serves several readers; repeat "
                     "it on an idle machine")  # fmt: skip
    return lines
