"""Compute what tables, charts and comparisons show of a configuration and its runs, and what limits the trust in it."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from dataflow.analysis.statistics import MIN_RUNS, typical_seconds
from dataflow.analysis.workload import flow_of, label_of
from dataflow.catalogue.catalogue import (
    CONFIGURATIONS,
    TRANSPORTS,
    Transport,
    producer_writes_in_place,
)
from dataflow.errors import RecordError
from dataflow.plan.options import FORMS, options_of
from dataflow.records.schema import Record, Run
from dataflow.units import format_bytes

DISTURBED, NOT_SETTLED = (
    "disturbed",
    "not settled",
)  # statuses: runs are ok, but none of them has a time that counts
UNCOUNTED = (DISTURBED, NOT_SETTLED)
MIN_SHARE = (
    0.9  # of the memcpy time, which was measured at another time, for readers that own a copy
)
MAX_DRIFT = (
    1.3  # of the fastest memcpy pass: the ratio of its times before and after the iterations
)
MIN_DRIFT_SECONDS = (
    0.01  # of that pass: messages that fit into caches are copied up to twice as fast at times
)
MIN_P95_SAMPLES = 100  # five are above the percentile; of fewer, it would be nearly the largest one
MAX_OVERHEAD = 0.05  # of the benchmark itself, of an iteration


class Result:
    """A configuration with all its runs, from at least one record; RecordError if the transport is unknown."""

    def __init__(self, records: Sequence[Record], peers: Sequence["Result"] = ()) -> None:
        self.records, record = tuple(records), records[0]
        self.workload, self.configuration = record.workload, record.configuration
        self.table, self.traced, self.name = record.table, record.traced, record.configuration.name
        transport, flags = (
            f"{self.configuration.runtime} {self.configuration.transport}",
            self.configuration.flags,
        )
        if transport not in TRANSPORTS:
            raise RecordError(f"this version has no transport {transport}: leave its record out")
        self.transport: Transport = TRANSPORTS[transport]
        self.label, self.flow = label_of(self.workload, self.configuration), flow_of(self.workload)
        # The producer's copy is outside of the clock. A packed message is always copied inside.
        is_packed = self.workload.message == "packed"
        self.producer_writes_in_place = (
            producer_writes_in_place(self.transport, flags) and not is_packed
        )
        options = options_of(self.workload.flow, flags)
        self.in_flight, self.threads = options.in_flight, options.threads
        self.check_every = (
            options.group_size
        )  # iterations between two full verifications, timed as one group
        self.runs = [run for record in records for run in record.runs]
        self.paired = any(run.pair for run in self.runs)
        self.allows_disturbed = all(record.arguments.get("allow_disturbed") for record in records)
        self.ok_runs = [run for run in self.runs if run.status == "ok"]
        self.quiet_runs = [run for run in self.runs if self.allows_disturbed or not run.disturbance]
        self.status, self.shown_runs, self.failure = self._choose_runs()
        self.seconds = [seconds for run in self.shown_runs for seconds in run.seconds]
        self.run_seconds = [self.seconds_of(run) for run in self.shown_runs if run.seconds]
        self.first_seconds = [run.first_seconds for run in self.shown_runs if run.first_seconds]
        self.readers_own_a_copy = bool(self.ok_runs and self.ok_runs[0].readers_own_a_copy)
        self.work = (
            self.readers_own_a_copy,
            self.producer_writes_in_place,
        )  # times are divided only if it is equal
        self.spilled_bytes = sum(run.spilled_bytes for run in self.shown_runs)
        self.wrong_bytes = sum(
            run.wrong_bytes for run in self.runs
        )  # an ok run does not make up for a wrong one
        # Results of its table with equal messages and threads share their reference times, so that multiples compare.
        alike = [
            r
            for r in peers or [self]
            if (r.threads, r.workload.edges) == (self.threads, self.workload.edges)
        ]
        # References of a form that changes the bytes are copies of what is sent.
        runs = [run for r in alike if not FORMS.get(r.workload.message) for run in r.quiet_runs]
        self.memcpy_seconds = median_of(
            run.memcpy_before_seconds + run.memcpy_after_seconds for run in runs
        )
        cold_copies = [run.cold_copy_before_seconds + run.cold_copy_after_seconds for run in runs]
        self.cold_copy_seconds = (
            median_of(cold_copies) if self.readers_own_a_copy else None
        )  # views copy nothing
        if problem := self._explain_impossible():
            self.status, self.failure = "impossible", f"impossible: {problem}"
        measured = [
            record for record in records if any(run.status == "ok" for run in record.runs)
        ]  # others have none
        self.environments: list[dict[str, Any]] = [
            record.environments.get("0", {}) for record in measured
        ]
        environment = self.environments[0] if self.environments else {}
        versions = environment.get("versions") or {}
        # Results are combined over campaigns only if these are equal; None: unknown.
        self.code = environment.get("clock_code"), versions.get("ray"), versions.get("torch")

    def _choose_runs(self) -> tuple[str, list[Run], str | None]:
        """Return the status, the shown runs (without ok ones: the failed or skipped), and why others are not shown."""
        others = [run for run in self.runs if run.status != "ok"]
        reason = f"{others[0].status}: {others[0].reason}" if others else None
        if not self.ok_runs:
            failed = [run for run in others if run.status == "failed"]
            return ("failed", failed, reason) if failed else ("skipped", others, reason)
        quiet, disturbance = (
            [run for run in self.quiet_runs if run.status == "ok"],
            self.ok_runs[0].disturbance,
        )
        settled = [run for run in quiet if run.settled is not False]
        if settled:
            return "ok", settled, reason and f"{len(others)} of {len(self.runs)} runs {reason}"
        if quiet:
            return NOT_SETTLED, [], (f"{NOT_SETTLED}: after {quiet[-1].warmup_iterations} untimed iterations, the "
                "times still changed or the page faults still fell: give --warmup a larger number")  # fmt: skip
        return DISTURBED, [], (f"{DISTURBED}: none of {len(self.ok_runs)} runs counts, as {disturbance}: measure "
                "again on an idle machine, or with --allow-disturbed")  # fmt: skip

    def copy_shares(self, reduce: Callable[[Sequence[float]], float]) -> list[float]:
        """Return the median iteration of each run that measured copies / the least time of copies of all messages."""
        is_serial = self.transport.requirements.single_process or len(
            self.flow.edges
        ) == self.flow.path_length(max)
        shares = []
        for run in self.shown_runs:
            all_cores = [] if is_serial else run.memcpy_all_cores_seconds  # actors can copy at once
            passes = [run.memcpy_before_seconds + run.memcpy_after_seconds, all_cores]
            if run.seconds and any(passes):
                shares.append(
                    float(np.median(run.seconds))
                    / min(reduce(seconds) for seconds in passes if seconds)
                )
        return shares

    def _explain_impossible(self) -> str | None:
        """Return why readers that own a copy cannot have got it in so little time; None if they can."""
        runs, edges, shares = self.shown_runs, self.flow.edges, self.copy_shares(min)
        # The machine may have been slower while the memcpy time of one run was measured, so each must be too fast.
        if not MIN_RUNS <= len(runs) == len(shares) or not all(
            run.readers_own_a_copy for run in runs
        ):
            return None
        # Several readers that copy a message at once may read it from memory only once.
        written, read = (
            sum(edge.bytes for edge in some)
            for some in (edges, {e.source: e for e in edges}.values())
        )
        share = max(shares) * 2 * written / max(1, read + written)
        return None if share >= MIN_SHARE else (
            f"in each of {len(runs)} runs the median iteration took less time than the fastest memcpy of its bytes, by "
            f"{1 - share:.0%} or more: find out which bytes were not copied")  # fmt: skip

    def seconds_of(self, run: Run) -> float:
        """Return a run's median time per iteration, in seconds."""
        return float(np.median(self._group_means(run)))

    def _group_means(self, run: Run) -> list[float]:
        """Return the time of each group of a run divided by its size, in seconds per iteration."""
        if (
            not run.group_seconds
        ):  # without --check-every and --in-flight, each iteration is a group
            return run.seconds
        sizes = [self.check_every] * len(run.group_seconds)
        sizes[-1] = len(run.seconds) - sum(sizes[:-1])  # the last group can be smaller
        return [seconds / size for seconds, size in zip(run.group_seconds, sizes, strict=True)]

    @cached_property
    def typical_seconds(self) -> float:
        """Return the time per iteration of this configuration: the geometric mean of its runs' medians of groups."""
        return typical_seconds(self.run_seconds)

    @property
    def p95_seconds(self) -> float | None:
        """Return the 95th percentile of the times per iteration; None if fewer than five of them are above it."""
        samples = self.seconds
        if self.in_flight > 1:  # the time of one iteration includes the wait for others
            samples = [mean for run in self.shown_runs for mean in self._group_means(run)]
        return float(np.percentile(samples, 95)) if len(samples) >= MIN_P95_SAMPLES else None

    @property
    def times_memcpy(self) -> float | None:
        """Return time / memcpy time; None for views, because they copy nothing."""
        return self.multiple_of(self.memcpy_seconds) if self.readers_own_a_copy else None

    def multiple_of(self, reference_seconds: float | None) -> float | None:
        return self.typical_seconds / reference_seconds if reference_seconds else None

    @property
    def peak_memory_bytes(self) -> int:
        """Return the largest sum over the processes of a run."""
        sums = [
            sum(cost.peak_memory_bytes or 0 for cost in run.processes.values())
            for run in self.shown_runs
        ]
        return max(sums, default=0)

    @property
    def faults_per_iteration(self) -> float | None:
        """Return the page faults of all processes together; None if they are unknown."""
        counts = [cost.minor_faults for run in self.shown_runs for cost in run.processes.values()]
        return (
            None if None in counts or not counts else sum(filter(None, counts)) / len(self.seconds)
        )

    @property
    def cpu_seconds_per_iteration(self) -> float | None:
        """Return the CPU time of all processes together; None if it is unknown for a run."""
        seconds = [run.cpu_seconds for run in self.shown_runs]
        return None if None in seconds else sum(filter(None, seconds)) / len(self.seconds)

    @property
    def overhead_share(self) -> float | None:
        """Return the time of the null transport / the time per iteration: the share of the benchmark itself."""
        null_seconds = median_of(run.null_transport_seconds for run in self.shown_runs)
        return null_seconds / self.typical_seconds if null_seconds else None


def group_results(records: Iterable[Record]) -> list[Result]:
    """Return the results in the order of the catalogue. Flags that are not in it follow their transport."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        key = (
            record.table,
            record.workload,
            record.configuration,
            record.traced,
            any(run.pair for run in record.runs),
        )
        if record.runs:
            groups.setdefault(key, []).append(record)
    order = {name: position for position, name in enumerate(CONFIGURATIONS)}
    results = map(Result, groups.values())
    return sorted(
        results,
        key=lambda r: (order.get(r.name, order.get(r.transport.label, len(order))), r.label),
    )


def median_of(samples: Iterable[Sequence[float]]) -> float | None:
    """Return the median of the samples of all runs together; None if there are none."""
    values = [*chain(*samples)]
    return float(np.median(values)) if values else None


def warnings(result: Result) -> list[str]:
    """Return what limits the trust in a result, one line each, with what to do. Empty if nothing was timed."""
    lines = []
    for run in (run for run in result.runs if run.seconds):
        if disturbance := run.disturbance:
            lines.append(
                f"{disturbance} during the run: close other programs, and repeat it with --runs 5"
            )
        before, after = (
            min(passes, default=0)
            for passes in (run.memcpy_before_seconds, run.memcpy_after_seconds)
        )
        if (
            min(before, after) > MIN_DRIFT_SECONDS
            and max(before / after, after / before) > MAX_DRIFT
        ):
            lines.append(f"the memcpy time changed from {before * 1e3:.3g} to {after * 1e3:.3g} ms during the run, so "
                         "the speed of the machine changed: repeat it with --runs 5")  # fmt: skip
    if not result.seconds:
        return [*lines, str(result.failure)] if result.status == NOT_SETTLED else lines
    if result.spilled_bytes:
        lines.append(f"{format_bytes(result.spilled_bytes)} were spilled to disk, so iterations were slower: raise "
                     "--object-store-bytes")  # fmt: skip
    if (result.overhead_share or 0) > MAX_OVERHEAD:
        lines.append(f"{result.overhead_share:.1%} of an iteration is the benchmark's own work (as over a null "
                     "transport): the transport itself is faster")  # fmt: skip
    share = min(result.copy_shares(np.median), default=1)
    if result.readers_own_a_copy and share < MIN_SHARE:
        lines.append(f"the median iteration of a run takes {share:.2f} times the memcpy time of the same run: "
                     "the machine was slower while memcpy was measured, or one copy serves several readers; repeat "
                     "it on an idle machine")  # fmt: skip
    return lines
