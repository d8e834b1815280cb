# SPDX-License-Identifier: Apache-2.0
"""Compute what tables, charts and comparisons show of a configuration and its runs."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from dataflow.analysis.attempts import PlannedRun, group_attempts
from dataflow.analysis.statistics import MIN_RUNS, typical_seconds
from dataflow.analysis.workload import flow_of, label_of
from dataflow.catalogue.catalogue import (
    CONFIGURATIONS,
    REFERENCE,
    TRANSPORTS,
    Transport,
    later_messages_overwrite,
    producer_writes_in_place,
)
from dataflow.errors import RecordError
from dataflow.plan.options import FORMS, options_of
from dataflow.records.schema import Record, Run

# Statuses of results whose runs are ok, but none of them has a time that counts.
DISTURBED = "disturbed"
NOT_SETTLED = "not settled"
UNCOUNTED = (DISTURBED, NOT_SETTLED)
# Of the memcpy time, which was measured at another time, for readers that own a copy.
MIN_SHARE = 0.9
# Words in the reasons of older records, and what is shown: the suite does not have this flag any more.
OLD_WORDS = {": use another --transport": "", "needs 1 GPUs": "needs 1 GPU"}
MIN_P95_SAMPLES = 20  # one is above the percentile; of fewer, it would be the largest one
SLOW = 1.5  # times the median of its run: an iteration that takes longer is slow


class Result:
    """A configuration with all its runs, from at least one record; RecordError if the transport is unknown.

    The records have the same workload and configuration. `peers` are the results of the same table, with this one.
    """

    def __init__(self, records: Sequence[Record], peers: Sequence["Result"] = ()) -> None:
        self.records = tuple(records)
        record = records[0]
        self.workload = record.workload
        self.configuration = record.configuration
        self.table = record.table
        self.traced = record.traced
        self.name = record.configuration.name
        self.transport = find_transport(record)
        self.label = label_of(self.workload, self.configuration)
        self.flow = flow_of(self.workload)
        self._read_flags()
        self._read_runs()
        self.status, self.shown_runs, self.failure = self._choose_runs()
        self._read_shown_runs()
        self._share_references(peers or [self])
        if problem := self._explain_impossible():
            self.status = "impossible"
            self.failure = f"impossible: {problem}"
        self._read_environments()

    def _read_flags(self) -> None:
        """Set what the flags say: who copies, into which memory, and how many iterations are timed together."""
        flags = self.configuration.flags
        # The producer's copy is outside of the clock. A packed message is always copied inside.
        is_packed = self.workload.message == "packed"
        writes_in_place = producer_writes_in_place(self.transport, flags)
        self.producer_writes_in_place = writes_in_place and not is_packed
        # With a form that sends only what has changed, each message changes the memory of the one before.
        is_changed = bool(FORMS.get(self.workload.message))
        self.is_overwritten = is_changed or later_messages_overwrite(self.transport, flags)
        options = options_of(self.workload.flow, flags)
        self.in_flight = options.in_flight
        self.threads = options.threads
        self.keeps_memory = options.retain_memory
        # Iterations between two full verifications, timed as one group.
        self.check_every = options.group_size

    def _read_runs(self) -> None:
        """Set the runs: all, the ok ones, those that nothing disturbed, and those that were asked for."""
        self.runs: list[Run] = []
        for record in self.records:
            self.runs += record.runs
        self.paired = any(run.pair for run in self.runs)
        self.allows_disturbed = all(
            record.arguments.get("allow_disturbed") for record in self.records
        )
        self.ok_runs = [run for run in self.runs if run.status == "ok"]
        self.quiet_runs = [run for run in self.runs if self.allows_disturbed or not run.disturbance]
        self.planned_runs: list[PlannedRun] = []
        for record in self.records:
            self.planned_runs += group_attempts(record.runs, self.allows_disturbed)
        self.ok_planned_runs = [planned for planned in self.planned_runs if planned.is_ok]
        # An ok run does not make up for a wrong one.
        self.wrong_bytes = sum(run.wrong_bytes for run in self.runs)

    def _read_shown_runs(self) -> None:
        """Set the times of the runs that count, in seconds, and what their readers got."""
        self.seconds: list[float] = []
        self.run_seconds: list[float] = []
        self.first_seconds: list[float] = []
        for run in self.shown_runs:
            self.seconds += run.seconds
            if run.seconds:
                self.run_seconds.append(self.seconds_of(run))
            if run.first_seconds:
                self.first_seconds.append(run.first_seconds)
        self.readers_own_a_copy = bool(self.ok_runs and self.ok_runs[0].readers_own_a_copy)
        # A view is never to keep, whatever the flags say of copies.
        is_overwritten = self.is_overwritten and self.readers_own_a_copy
        # Times are divided only if it is equal.
        sizes = self.workload.changing_sizes
        self.work = (
            self.readers_own_a_copy,
            is_overwritten,
            self.producer_writes_in_place,
            sizes,
        )
        self.spilled_bytes = sum(run.spilled_bytes for run in self.shown_runs)

    def _share_references(self, peers: Sequence["Result"]) -> None:
        """Set the reference times, which results with equal messages and threads share, so that multiples compare."""
        warm = []
        cold = []
        for peer in peers:
            has_equal_threads = peer.threads == self.threads
            has_equal_messages = peer.workload.edges == self.workload.edges
            # References of a form that changes the bytes are copies of what is sent.
            is_changed = FORMS.get(peer.workload.message)
            if has_equal_threads and has_equal_messages and not is_changed:
                for run in peer.quiet_runs:
                    warm.append(run.memcpy_before_seconds + run.memcpy_after_seconds)
                    cold.append(run.cold_copy_before_seconds + run.cold_copy_after_seconds)
        self.memcpy_seconds = median_of(warm)
        self.cold_copy_seconds = None  # of views, which copy nothing
        if self.readers_own_a_copy:
            self.cold_copy_seconds = median_of(cold)

    def _read_environments(self) -> None:
        """Set the machines and versions of the records, and the code that is equal for results of campaigns."""
        self.environments: list[dict[str, Any]] = []
        for record in self.records:
            # A record without an ok run was measured nowhere.
            if any(run.status == "ok" for run in record.runs):
                self.environments.append(record.environments.get("0", {}))
        environment = self.environments[0] if self.environments else {}
        versions = environment.get("versions") or {}
        # Campaigns are combined only if these are equal; None: unknown.
        self.versions = (versions.get("ray"), versions.get("torch"))
        # Equal for campaigns of one boot that are combined.
        self.code = (environment.get("clock_code"), *self.versions)

    def _choose_runs(self) -> tuple[str, list[Run], str | None]:
        """Return the status, the shown runs (without ok ones: the failed or skipped), and why others are not shown."""
        others = [run for run in self.runs if run.status != "ok"]
        reason = explain_run(others[0]) if others else None
        if not self.ok_runs:
            failed = [run for run in others if run.status == "failed"]
            return ("failed", failed, reason) if failed else ("skipped", others, reason)
        quiet = [run for run in self.quiet_runs if run.status == "ok"]
        if not quiet:
            return self._choose_disturbed_runs()
        counted = [run for run in quiet if self.counts(run)]
        if not counted:
            return NOT_SETTLED, [], explain_not_settled(quiet[-1])
        if reason:
            reason = f"{len(others)} of {len(self.planned_runs)} runs {reason}"
        return "ok", counted, reason

    def counts(self, run: Run) -> bool:
        """Return whether an ok run counts, as far as its warm-up decides it.

        Processes that keep memory may never settle. If such runs were left out, the others would hide it.
        """
        return self.keeps_memory or run.settled is not False

    def _choose_disturbed_runs(self) -> tuple[str, list[Run], str | None]:
        """Choose as `_choose_runs` if each run was disturbed: the last attempt of those that cannot be repeated."""
        disturbance = self.ok_runs[0].disturbance
        exhausted = [planned for planned in self.ok_planned_runs if planned.is_exhausted]
        last_attempts = [planned.ok_attempts[-1] for planned in exhausted]
        counted = [run for run in last_attempts if self.counts(run)]
        if counted:
            return (
                "ok",
                counted,
                (
                    f"each run and its repetitions were {DISTURBED} ({disturbance}). They count, because there are no "
                    "others, but are not ranked: measure again on an idle machine"
                ),
            )
        count = len(self.ok_planned_runs)
        repetitions = len(self.ok_runs) - count
        subject = "the run does not count" if count == 1 else f"none of {count} runs counts"
        if repetitions:
            subject += f" (repeated {repetitions} times)"
        return (
            DISTURBED,
            [],
            (
                f"{DISTURBED}: {subject}, as {disturbance}: measure again on an idle machine, or with --allow-disturbed"
            ),
        )

    @property
    def is_disturbed(self) -> bool:
        """Return whether its runs count although they were disturbed, because it has no others. It is not ranked."""
        if self.status != "ok" or self.allows_disturbed:
            return False
        return all(run.disturbance for run in self.shown_runs)

    @property
    def quiet_count(self) -> int:
        """Return how many of the shown runs nothing disturbed.

        With --allow-disturbed, the others are shown too.
        """
        return sum(not run.disturbance for run in self.shown_runs)

    @property
    def can_be_ranked(self) -> bool:
        """Return whether it has enough quiet runs for a verdict."""
        return self.status == "ok" and self.quiet_count >= MIN_RUNS

    def copy_shares(self, reduce: Callable[[Sequence[float]], float]) -> list[float]:
        """Return the median iteration of each run that measured copies / the least time of copies of all messages.

        If sizes change, it is the mean iteration, because the copies are of the mean of the sizes.
        """
        middle = np.mean if self.workload.changing_sizes else np.median
        is_chain = len(self.flow.edges) == self.flow.path_length(max)
        is_serial = self.transport.requirements.single_process or is_chain
        shares = []
        for run in self.shown_runs:
            passes = [run.memcpy_before_seconds + run.memcpy_after_seconds]
            if not is_serial:  # actors can copy at once
                passes.append(run.memcpy_all_cores_seconds)
            copies = [reduce(seconds) for seconds in passes if seconds]
            if run.seconds and copies:
                shares.append(float(middle(run.seconds)) / min(copies))
        return shares

    def _explain_impossible(self) -> str | None:
        """Return why readers that own a copy cannot have got it in so little time; None if they can."""
        runs = self.shown_runs
        shares = self.copy_shares(min)
        # The machine may have been slower while the memcpy time of one run was measured, so each must be too fast.
        is_known = MIN_RUNS <= len(runs) == len(shares)
        if not is_known or not all(run.readers_own_a_copy for run in runs):
            return None
        # Several readers that copy a message at once may read it from memory only once.
        messages = {edge.source: edge for edge in self.flow.edges}
        written = sum(edge.bytes for edge in self.flow.edges)
        read = sum(edge.bytes for edge in messages.values())
        share = max(shares) * 2 * written / max(1, read + written)
        if share >= MIN_SHARE:
            return None
        return (
            f"in each of {len(runs)} runs the median iteration took less time than the fastest memcpy of its bytes, by "
            f"{1 - share:.0%} or more: find out which bytes were not copied"
        )

    def seconds_of(self, run: Run) -> float:
        """Return a run's mean time per iteration, in seconds: the time of all its iterations / their number."""
        return sum(run.group_seconds or run.seconds) / len(run.seconds)

    def _group_means(self, run: Run) -> list[float]:
        """Return the time of each group of a run divided by its size, in seconds per iteration."""
        # Without --check-every and --in-flight, each iteration is a group.
        if not run.group_seconds:
            return run.seconds
        sizes = [self.check_every] * len(run.group_seconds)
        sizes[-1] = len(run.seconds) - sum(sizes[:-1])  # the last group can be smaller
        return [seconds / size for seconds, size in zip(run.group_seconds, sizes, strict=True)]

    @cached_property
    def typical_seconds(self) -> float:
        """Return the time per iteration of this configuration: the geometric mean of its runs' means."""
        return typical_seconds(self.run_seconds)

    @property
    def typical_median_seconds(self) -> float:
        """Return the geometric mean of its runs' medians, in seconds per iteration. Unlike means, they hide slow ones.

        A median is that of a run's groups, the iterations that are timed together. It is nan without a timed run.
        """
        timed_runs = [run for run in self.shown_runs if run.seconds]
        medians = [float(np.median(self._group_means(run))) for run in timed_runs]
        return typical_seconds(medians)

    def _times_of(self, run: Run) -> list[float]:
        """Return the times of a run's iterations, in seconds.

        With several in flight, each is one group's time per iteration: the time of one iteration includes the wait for
        others.
        """
        return run.seconds if self.in_flight == 1 else self._group_means(run)

    @property
    def p50_seconds(self) -> float | None:
        """Return the median of the times per iteration of all runs together; None without any."""
        return median_of(map(self._times_of, self.shown_runs))

    @property
    def p95_seconds(self) -> float | None:
        """Return their 95th percentile; None for fewer than MIN_P95_SAMPLES."""
        times = [*chain.from_iterable(map(self._times_of, self.shown_runs))]
        if len(times) < MIN_P95_SAMPLES:
            return None
        return float(np.percentile(times, 95))

    @property
    def slow_share(self) -> float:
        """Return the share of iterations that took more than SLOW times the median of their run."""
        slow = 0
        count = 0
        for run in self.shown_runs:
            times = self._times_of(run)
            if times:
                limit = SLOW * float(np.median(times))
                slow += sum(seconds > limit for seconds in times)
                count += len(times)
        return slow / max(1, count)

    @property
    def times_memcpy(self) -> float | None:
        """Return time / memcpy time; None for views, which copy nothing, and for the reference itself."""
        if not self.readers_own_a_copy or self.transport.label == REFERENCE:
            return None
        return self.multiple_of(self.memcpy_seconds)

    @property
    def host_copy_seconds(self) -> float | None:
        """Return the time of a copy of each message into pinned host memory, and one from it; None without GPUs."""
        seconds = []
        for direction in ("to", "from"):
            kind = f"{direction} host, pinned"
            passes = [run.host_copy_seconds.get(kind, []) for run in self.shown_runs]
            seconds.append(median_of(passes))
        to_host, from_host = seconds
        if to_host is None or from_host is None:
            return None
        return to_host + from_host

    def multiple_of(self, reference_seconds: float | None) -> float | None:
        """Return time / reference time; None if there is no reference."""
        if not reference_seconds:
            return None
        return self.typical_seconds / reference_seconds

    @property
    def peak_memory_bytes(self) -> int:
        """Return the largest sum over the processes of a run."""
        largest = 0
        for run in self.shown_runs:
            of_run = sum(cost.peak_memory_bytes or 0 for cost in run.processes.values())
            largest = max(largest, of_run)
        return largest

    @property
    def held_memory_bytes(self) -> tuple[int, int] | None:
        """Return the private and the shared memory that all processes hold after the last iteration.

        It is that of the run that holds most; None if it is unknown.
        """
        of_runs = []
        for run in self.shown_runs:
            costs = run.processes.values()
            private = [cost.private_bytes for cost in costs]
            shared = [cost.shared_bytes for cost in costs]
            if not costs or None in private or None in shared:
                return None
            of_runs.append((sum(filter(None, private)), sum(filter(None, shared))))
        return max(of_runs, key=sum, default=None)

    @property
    def faults_per_iteration(self) -> float | None:
        """Return the page faults of all processes together; None if they are unknown."""
        counts = []
        for run in self.shown_runs:
            counts += [cost.minor_faults for cost in run.processes.values()]
        return self._mean_per_iteration(counts) if counts else None

    @property
    def cpu_seconds_per_iteration(self) -> float | None:
        """Return the CPU time of all processes together; None if it is unknown for a run."""
        return self._mean_per_iteration([run.cpu_seconds for run in self.shown_runs])

    def _mean_per_iteration(self, amounts: Sequence[float | None]) -> float | None:
        """Return the sum of amounts / the number of iterations; None if an amount is unknown."""
        total = 0.0
        for amount in amounts:
            if amount is None:
                return None
            total += amount
        return total / len(self.seconds)

    @property
    def overhead_share(self) -> float | None:
        """Return the time of the null transport / the time per iteration: the share of the benchmark itself."""
        null_seconds = median_of(run.null_transport_seconds for run in self.shown_runs)
        if not null_seconds:
            return None
        return null_seconds / self.typical_seconds


def find_transport(record: Record) -> Transport:
    """Return the transport of a record; raise RecordError if this version does not have it."""
    label = f"{record.configuration.runtime} {record.configuration.transport}"
    if label not in TRANSPORTS:
        raise RecordError(f"this version has no transport {label}: leave its record out")
    return TRANSPORTS[label]


def explain_run(run: Run) -> str:
    """Return why a run has no time, as "skipped: nccl needs 3 GPUs and this machine has 0"."""
    text = f"{run.status}: {run.reason}"
    for old, new in OLD_WORDS.items():
        text = text.replace(old, new)
    return text


def explain_not_settled(run: Run) -> str:
    """Return why a run does not count whose times still changed after the warm-up, and what to do."""
    return (
        f"{NOT_SETTLED}: after {run.warmup_iterations} untimed iterations, the times still changed or the page faults "
        "still fell: give --warmup a larger number"
    )


def group_results(records: Iterable[Record]) -> list[Result]:
    """Return the results in the order of the catalogue. Flags that are not in it follow their transport."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        is_paired = any(run.pair for run in record.runs)
        key = (record.table, record.workload, record.configuration, record.traced, is_paired)
        if record.runs:
            groups.setdefault(key, []).append(record)
    order = {name: position for position, name in enumerate(CONFIGURATIONS)}

    def position_of(result: Result) -> tuple[int, str]:
        of_transport = order.get(result.transport.label, len(order))
        return order.get(result.name, of_transport), result.label

    return sorted(map(Result, groups.values()), key=position_of)


def median_of(samples: Iterable[Sequence[float]]) -> float | None:
    """Return the median of the samples of all runs together; None if there are none."""
    values = [*chain(*samples)]
    return float(np.median(values)) if values else None
