# SPDX-License-Identifier: Apache-2.0
"""Show what campaigns have measured with a column per machine, because times of two machines have no common mean.

A machine is a boot. All iterations of its campaigns count together: their mean, median and 95th percentile.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median

import numpy as np

from dataflow.analysis.campaigns import Row
from dataflow.analysis.cost_model import SMALL_BYTES
from dataflow.analysis.result import SLOW
from dataflow.analysis.stored_costs import CostFile, StoredCost
from dataflow.report.tables import (
    Column,
    format_microseconds,
    format_milliseconds,
    format_significant,
    format_slow_share,
)
from dataflow.units import GB, MILLISECOND

NAME_LENGTH = 4  # of a boot, in a header and in the names of campaigns


@dataclass(frozen=True)
class MachineTimes:
    """The times of all iterations of a configuration on one machine, in seconds."""

    seconds: Sequence[float]

    @property
    def mean(self) -> float:
        return fmean(self.seconds)

    @property
    def slow_share(self) -> float:
        """Return the share of iterations that took more than SLOW times the median of the machine."""
        limit = SLOW * median(self.seconds)
        slow = [seconds for seconds in self.seconds if seconds > limit]
        return len(slow) / len(self.seconds)

    def __str__(self) -> str:
        """Return mean, median and 95th percentile in milliseconds, such as "146 (50, 339)"."""
        ends = np.percentile(self.seconds, [50, 95])
        middle, high = [format_significant(float(end) / MILLISECOND) for end in ends]
        return f"{format_milliseconds(self.mean)} ({middle}, {high})"


def times_of(
    row: Row, is_baseline: bool = False, campaigns: Collection[str] | None = None
) -> dict[str, MachineTimes]:
    """Return the times of all iterations by boot: of the configuration, or of its baseline in the same campaigns.

    `campaigns` are the names of those that count; None: all.
    """
    by_boot: dict[str, list[float]] = {}
    for name, pair in row.pairs.items():
        if campaigns is not None and name not in campaigns:
            continue
        result = pair.old if is_baseline else pair.new
        boot = row.factor.boots[name]
        by_boot.setdefault(boot, []).extend(result.seconds)
    return {boot: MachineTimes(seconds) for boot, seconds in by_boot.items()}


def order_of(row: Row) -> float:
    """Return by what rows are ranked: the time relative to that of the baseline, or of other work the mean time.

    Both are geometric means over the machines. A row that lacks a machine can only be ranked by a relative time.
    """
    factors = factors_of(row)
    if factors:
        return 1 / geometric_mean(factors.values())
    by_boot = times_of(row)
    means = [times.mean for times in by_boot.values()]
    return geometric_mean(means)


def boots_of_rows(rows: Sequence[Row]) -> list[str]:
    """Return the boots that the rows have, the one of the oldest campaign first."""
    by_campaign: dict[str, str] = {}
    for row in rows:
        by_campaign |= row.factor.boots
    boots: list[str] = []
    # The names of campaigns begin with the day.
    for name in sorted(by_campaign):
        boot = by_campaign[name]
        if boot not in boots:
            boots.append(boot)
    return boots


def machine_columns(rows: Sequence[Row]) -> list[Column]:
    """Return a column of times for each machine of the rows."""
    return [column_of(boot) for boot in boots_of_rows(rows)]


def column_of(boot: str) -> Column:
    def cell(row: Row) -> str:
        times = times_of(row).get(boot)
        return "-" if times is None else str(times)

    return Column(f"{boot[:NAME_LENGTH]}: mean ms (p50, p95)", cell)


def factors_of(row: Row) -> dict[str, float]:
    """Return, by boot, how many times as fast as its baseline the mean of a configuration is; {} for other work."""
    if not row.is_comparable:
        return {}
    baseline = times_of(row, is_baseline=True)
    own = times_of(row)
    return divide_by_boot(baseline, own)


def divide_by_boot(
    old: Mapping[str, MachineTimes], new: Mapping[str, MachineTimes]
) -> dict[str, float]:
    """Return, by boot, how many times as fast the new times are as the old ones, by their means."""
    factors = {}
    for boot, times in new.items():
        old_mean = old[boot].mean
        factors[boot] = old_mean / times.mean
    return factors


def divide_means(row: Row, other: Row) -> dict[str, float]:
    """Return, by boot, how many times as fast the mean of a configuration is as that of another one.

    Only campaigns that have measured both count. {} if they do other work.
    """
    if row.newest.work != other.newest.work:
        return {}
    shared = row.pairs.keys() & other.pairs.keys()
    old = times_of(other, campaigns=shared)
    new = times_of(row, campaigns=shared)
    return divide_by_boot(old, new)


def list_by_machine(numbers: Mapping[str, float], boots: Sequence[str]) -> str:
    """Return a number for one machine after the other, and "-" for those that have none; "-" if none has one."""
    if not numbers:
        return "-"
    known = {boot: format_significant(number) for boot, number in numbers.items()}
    texts = [known.get(boot, "-") for boot in boots]
    return ", ".join(texts)


def list_means(row: Row, boots: Sequence[str], factor: float = 1 / MILLISECOND) -> str:
    """Return the mean times of one machine after the other, in milliseconds or in other units."""
    means = {}
    for boot, times in times_of(row).items():
        means[boot] = factor * times.mean
    return list_by_machine(means, boots)


def format_factors(row: Row, boots: Sequence[str]) -> str:
    """Return the factors of one machine after the other; "-" for other work than that of the baseline."""
    if row.is_baseline:
        return "1"
    return list_by_machine(factors_of(row), boots)


def format_slow(row: Row) -> str:
    """Return the share of slow iterations on the machine that has most; "-" if they are few."""
    by_boot = times_of(row)
    return format_slow_share(max(times.slow_share for times in by_boot.values()))


class FittedCosts:
    """What configurations cost in copies and page faults, as far as that explains their times."""

    def __init__(self, stored: CostFile) -> None:
        self.by_key = {}
        for cost in stored.costs:
            key = cost.table, cost.flow, cost.configuration
            self.by_key[key] = cost
        self.machines = {machine.boot: machine for machine in stored.machines}

    def of(self, row: Row) -> StoredCost | None:
        newest = row.newest
        key = newest.table, newest.workload.flow, newest.label
        return self.by_key.get(key)

    def format(self, row: Row) -> str:
        """Return copies, page faults and what neither explains, such as "4.4, 11,000, 130 ms"; "-" if not known."""
        cost = self.of(row)
        if cost is None:
            return "-"
        text = f"{format_significant(cost.copies)}, {format_significant(cost.faults)}"
        if not cost.fixed_seconds:
            return text
        return f"{text}, {format_milliseconds(cost.fixed_seconds)} ms"

    def say_machines(self, rows: Sequence[Row]) -> str:
        """Return what a copy and a page fault take on each machine of the rows; "" if that is not known."""
        size = rows[0].newest.workload.bytes_per_iteration
        texts = []
        for boot in boots_of_rows(rows):
            machine = self.machines.get(boot)
            if machine is None:
                continue
            rate = format_significant(1 / machine.byte_seconds / GB)
            fault = format_microseconds(machine.fault_seconds)
            text = f"`{boot[:NAME_LENGTH]}` {rate} GB/s and {fault} µs per page fault"
            if size >= SMALL_BYTES:
                copy = format_milliseconds(size * machine.byte_seconds)
                text += f", so one copy for each reader takes {copy} ms"
            texts.append(text)
        if not texts:
            return ""
        return f"The machines, by what all cores copy together: {'; '.join(texts)}."


def slow_columns(rows: Sequence[Row]) -> list[Column]:
    """Return the column of slow iterations, if a row has more than a few."""
    shares: Mapping[str, str] = {row.newest.label: format_slow(row) for row in rows}
    if all(text == "-" for text in shares.values()):
        return []
    return [Column(f"slower than {SLOW:g} x p50", format_slow, rank=2)]
