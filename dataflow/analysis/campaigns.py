"""Combine campaigns: the same configurations on several boots or days, as ratios to a baseline of the same campaign.

Repeatability is how much a ratio varies within a campaign, reproducibility how much it varies between campaigns
(docs/method.md).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result, group_results
from dataflow.analysis.statistics import CONFIDENCE
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.errors import RecordError
from dataflow.records import files

MIN_CAMPAIGNS = 3  # for an interval
Campaigns = Mapping[str, Sequence[Result]]  # by the name of the folder, the oldest first


class Row:
    """One configuration, and the baseline of its table, in each campaign that measured both with the newest code."""

    def __init__(self, pairs: Mapping[str, Pair]) -> None:
        self.pairs = pairs  # by campaign; `old` is the baseline
        self.baseline, self.newest = [*pairs.values()][-1].sides
        self.is_baseline = self.baseline is self.newest
        # Equal for the same ratio of other campaigns: the configuration and the baseline.
        self.key = tuple(
            (r.table, r.workload, r.configuration) for r in (self.newest, self.baseline)
        )
        # Whether the baseline does the same work, so that its time may be divided.
        self.is_comparable = all(pair.old.work == pair.new.work for pair in pairs.values())
        # How many times as fast as the baseline the configuration was in each campaign.
        self.ratios = (
            {name: 1 / pair.ratio.value for name, pair in pairs.items()}
            if self.is_comparable
            else {}
        )
        self.values = [*self.ratios.values()]
        self.mean = geometric_mean(self.values) if self.ratios else 0.0
        self.interval = None if self.is_baseline else predict(self.values)

    def divide(self, other: "Row") -> list[float]:
        """Return how many times as fast as another configuration it was, in each campaign that has both."""
        return [
            ratio / other.ratios[name]
            for name, ratio in self.ratios.items()
            if name in other.ratios
        ]

    @property
    def repeatability(self) -> float | None:
        """Return what multiplies and divides a ratio for the ends of its interval in a campaign, the median of all."""
        intervals = [pair.ratio.interval for pair in self.pairs.values() if pair.ratio.interval]
        is_known = intervals and self.ratios and not self.is_baseline
        return median((high / low) ** 0.5 for low, high in intervals) if is_known else None


def predict(ratios: Collection[float]) -> tuple[float, float] | None:
    """Return where the ratio of one more campaign lies with a probability of 95 %; None for too few campaigns.

    The logarithms of the ratios are taken as a sample of a normal distribution (Student's t, prediction interval).
    """
    from scipy.stats import t

    count, logarithms = len(ratios), np.log([*ratios])
    if count < MIN_CAMPAIGNS:
        return None
    half = t.ppf((1 + CONFIDENCE) / 2, count - 1) * logarithms.std(ddof=1) * (1 + 1 / count) ** 0.5
    low, high = (float(np.exp(logarithms.mean() + change)) for change in (-half, half))
    return low, high


def load_campaigns(folder: Path, other: Path | None = None) -> Campaigns:
    """Return the results of each folder below this one except `other`; raise RecordError if there is none.

    The results of a table share their reference times, as in the tables of one measurement.
    """
    folders = sorted(
        path for path in folder.glob("*") if [*path.glob("*.json*")]
    )  # an interrupted one can have none
    folders = [path for path in folders if not (other and path.samefile(other))]
    if not folders:
        raise RecordError(f"{folder} has no campaigns: make campaign")
    campaigns = {}
    for path in folders:
        alone = group_results(files.load_all([path]))
        campaigns[path.name] = [
            Result(r.records, [other for other in alone if other.table == r.table]) for r in alone
        ]
    return campaigns


def combine(campaigns: Campaigns) -> list[Row]:
    """Return a row per configuration, in the order of tables.

    Results of other code, Ray or torch than the newest one are left out.
    """
    tables: dict[tuple[str, str], dict[Any, dict[str, Result]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for name, results in campaigns.items():
        for result in (result for result in results if result.status == "ok"):
            tables[result.table, result.workload.flow][result.workload, result.configuration][
                name
            ] = result
    rows = []
    for configurations in tables.values():
        measured = []
        for by_campaign in configurations.values():
            code = [*by_campaign.values()][-1].code
            measured.append(
                {name: r for name, r in by_campaign.items() if r.code == code and None not in code}
            )
        baseline = find_baseline([kept for kept in measured if kept])
        for kept in measured:
            if pairs := {
                name: Pair(baseline[name], result)
                for name, result in kept.items()
                if name in baseline
            }:
                rows.append(Row(pairs))
    return rows


def find_baseline(measured: Sequence[Mapping[str, Result]]) -> Mapping[str, Result]:
    """Return the demo's queues or plain references, with no flag that others do not have, or else the first one."""
    first = [next(iter(by_campaign.values())) for by_campaign in measured]
    flags = [
        {(name, str(value)) for name, value in result.configuration.flags.items()}
        for result in first
    ]
    for name in (BASELINE, SIMPLEST):
        for by_campaign, result, own in zip(measured, first, flags, strict=True):
            if result.transport.label == name and own == set.intersection(*flags):
                return by_campaign
    return measured[0] if measured else {}


def leave_one_out(rows: Sequence[Row]) -> dict[str, dict[Row, bool]]:
    """Return by campaign whether each of its ratios lies where the other campaigns say, if they are enough for that."""
    found = defaultdict[str, dict[Row, bool]](dict)
    for row in (row for row in rows if not row.is_baseline):
        for name, ratio in row.ratios.items():
            if interval := predict(
                [other for campaign, other in row.ratios.items() if campaign != name]
            ):
                found[name][row] = interval[0] <= ratio <= interval[1]
    return found
