"""Compute what tables, charts and comparisons show of a configuration and its runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from dataflow.analysis.statistics import MIN_RUNS, typical_seconds
from dataflow.analysis.workload import flow_of, label_of
from dataflow.catalogue.catalogue import TRANSPORTS, VARIANTS, Transport, Variant, producer_writes_in_place
from dataflow.errors import RecordError
from dataflow.plan.options import FORMS, options_of
from dataflow.records.schema import Record, Run

MAX_OTHER_CORES = 0.3  # that other programs use during a run; the times of a run with more are disturbed
MAX_STEAL_CORES = 0.1  # that the hypervisor takes, for other virtual machines
DISTURBED, NOT_SETTLED = "disturbed", "not settled"  # statuses: runs are ok, but none of them has a time that counts
UNCOUNTED = (DISTURBED, NOT_SETTLED)
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
        self.label, self.flow = label_of(self.workload, self.configuration), flow_of(self.workload)
        # The producer's copy is outside of the clock. A packed message is always copied inside.
        is_packed = self.workload.message == "packed"
        self.producer_writes_in_place = producer_writes_in_place(self.transport, flags) and not is_packed
        self.variant = _find_variant(self.transport, flags)
        self.in_flight, self.threads = flags.get("in_flight", 1), flags.get("threads", 1)
        # Iterations between two full verifications, which are timed as one group.
        self.check_every = options_of(self.workload.flow, flags).group_size
        self.runs = [run for record in records for run in record.runs]
        self.paired = any(run.pair for run in self.runs)
        self.allows_disturbed = all(record.arguments.get("allow_disturbed") for record in records)
        self.ok_runs = [run for run in self.runs if run.status == "ok"]
        self.quiet_runs = [run for run in self.runs if self.allows_disturbed or not find_disturbance(run)]
        self.status, self.shown_runs = self._choose_runs()
        self.seconds = [seconds for run in self.shown_runs for seconds in run.seconds]
        self.run_seconds = [self.seconds_of(run) for run in self.shown_runs if run.seconds]
        self.first_seconds = [run.first_seconds for run in self.shown_runs if run.first_seconds]
        self.readers_own_a_copy = next((run.readers_own_a_copy for run in self.ok_runs), None)
        self.spilled_bytes = sum(run.spilled_bytes for run in self.shown_runs)
        self.wrong_bytes = sum(run.wrong_bytes for run in self.runs)  # an ok run does not make up for a wrong one
        alike = [r for r in peers or [self] if (r.threads, r.workload.edges) == (self.threads, self.workload.edges)]
        # References of a form that changes the bytes are copies of what is sent.
        runs = [run for r in alike if not FORMS.get(r.workload.message) for run in r.quiet_runs]
        self.memcpy_seconds = median_of(run.memcpy_before_seconds + run.memcpy_after_seconds for run in runs)
        self.cold_copy_seconds = median_of(run.cold_copy_before_seconds + run.cold_copy_after_seconds for run in runs)
        self.impossible = self._explain_impossible()
        if self.impossible:
            self.status = "impossible"
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

    def copy_seconds(self, run: Run, reduce: Callable[[Sequence[float]], float]) -> float | None:
        """Return the least time that copies of all messages took in a run: by all cores if actors can copy at once."""
        passes = [run.memcpy_before_seconds + run.memcpy_after_seconds]
        if len(self.flow.edges) > self.flow.path_length(max) and not self.transport.requirements.single_process:
            passes.append(run.memcpy_all_cores_seconds)
        return min((float(reduce(seconds)) for seconds in passes if seconds), default=None)

    def _explain_impossible(self) -> str | None:
        """Return why readers that own a copy cannot have got it in so little time; None if they can.

        As the machine may have been slower while the memcpy time of one run was measured, every run must be too fast,
        and there must be MIN_RUNS. Several readers that copy a message at once may read it from memory only once.
        """
        runs, edges = self.shown_runs, self.flow.edges
        if len(runs) < MIN_RUNS or not all(run.readers_own_a_copy and run.seconds for run in runs):
            return None
        written, read = (sum(edge.bytes for edge in some) for some in (edges, {e.source: e for e in edges}.values()))
        bounds = [(self.copy_seconds(run, min) or 0) * (read + written) / (2 * written) for run in runs]
        share = max(np.median(run.seconds) / bound if bound else 1 for run, bound in zip(runs, bounds, strict=True))
        if share >= MIN_SHARE:
            return None
        return (f"in each of {len(runs)} runs the median iteration took less time than the fastest memcpy of its "
                f"bytes, by {1 - share:.0%} or more: find out which bytes were not copied")  # fmt: skip

    @property
    def failure(self) -> str | None:
        """Return why the times are impossible, or how many runs are not ok and the reason of the first; else None."""
        if self.impossible:
            return f"impossible: {self.impossible}"
        if self.status == DISTURBED:
            return (f"{DISTURBED}: none of {len(self.ok_runs)} runs counts, as {find_disturbance(self.ok_runs[0])}: "
                    "measure again on an idle machine, or with --allow-disturbed")  # fmt: skip
        if self.status == NOT_SETTLED:
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

    @cached_property
    def typical_seconds(self) -> float:
        """Return the time per iteration of this configuration: the geometric mean of its runs' medians of groups."""
        return typical_seconds(self.run_seconds)

    @cached_property
    def samples(self) -> list[float]:
        """Return the times per iteration in seconds: of single iterations, or of groups if several overlap.

        The latency of one of several iterations in flight includes the wait for those before it, so it is larger than
        the time per iteration.
        """
        if self.in_flight == 1:
            return self.seconds
        return [mean for run in self.shown_runs for mean in self._group_means(run)]

    @property
    def times_memcpy(self) -> float | None:
        """Return time / memcpy time; None for views, because they copy nothing."""
        return self.multiple_of(self.memcpy_seconds) if self.readers_own_a_copy else None

    @property
    def times_cold_copy(self) -> float | None:
        return self.multiple_of(self.cold_copy_seconds) if self.readers_own_a_copy else None

    def multiple_of(self, reference_seconds: float | None) -> float | None:
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
        """Return the time of the null transport / the time per iteration: the share of the benchmark itself."""
        null_seconds = median_of(run.null_transport_seconds for run in self.shown_runs)
        return null_seconds / self.typical_seconds if null_seconds else None


def group_results(records: Iterable[Record]) -> list[Result]:
    """Return the results in the order of the catalogue. Flags that are not in it follow their transport.

    Records with equal table, workload and configuration are one result; traced and paired ones are apart.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        paired = any(run.pair for run in record.runs)
        key = (record.table, record.workload, record.configuration, record.traced, paired)
        if record.runs:
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


def median_of(samples: Iterable[Sequence[float]]) -> float | None:
    """Return the median of the samples of all runs together; None if there are none."""
    values = [*chain(*samples)]
    return float(np.median(values)) if values else None


def find_disturbance(run: Run) -> str | None:
    """Return what disturbed a run so much that its times do not count; None if nothing did."""
    if (run.other_cores or 0) > MAX_OTHER_CORES:
        return f"other programs used {run.other_cores:.1f} cores"
    stolen = max([run.steal_cores, *(cost.steal_cores for cost in run.node_costs.values())])
    return f"the hypervisor took {stolen:.1f} cores" if stolen > MAX_STEAL_CORES else None
