"""Combine campaigns: the same configurations on several days and boots, as ratios to a baseline of the same campaign.

Repeatability is how much a ratio varies within a campaign, reproducibility how much it varies between campaigns
(docs/method.md).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result, group_results
from dataflow.analysis.statistics import CONFIDENCE
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.errors import RecordError
from dataflow.records import files

MIN_CAMPAIGNS = 3  # for an interval
Campaigns = Mapping[str, Sequence[Result]]  # by the name of the folder, the oldest first


@dataclass(frozen=True)
class Row:
    """One configuration, and the baseline of its table, in each campaign that measured both with the newest code."""

    pairs: Mapping[str, Pair]  # by campaign; `old` is the baseline

    @property
    def newest(self) -> Result:
        return [*self.pairs.values()][-1].new

    @property
    def baseline(self) -> Result:
        return [*self.pairs.values()][-1].old

    @property
    def is_baseline(self) -> bool:
        return self.baseline is self.newest

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what is equal for the same ratio of other campaigns: the configuration and the baseline."""
        new, old = self.newest, self.baseline
        return new.table, new.workload, new.configuration, old.workload, old.configuration

    @property
    def is_comparable(self) -> bool:
        """Whether the baseline does the same work, so that its time may be divided."""
        return all(pair.old.work == pair.new.work for pair in self.pairs.values())

    @cached_property
    def ratios(self) -> dict[str, float]:
        """Return how many times as fast as the baseline the configuration was in each campaign."""
        return {name: 1 / pair.ratio.value for name, pair in self.pairs.items()} if self.is_comparable else {}

    @property
    def values(self) -> list[float]:
        return [*self.ratios.values()]

    @property
    def mean(self) -> float:
        """Return the geometric mean of the ratios; 0 without any."""
        return mean_ratio(self.values) or 0.0

    def divide(self, other: "Row") -> list[float]:
        """Return how many times as fast as another configuration it was, in each campaign that has both."""
        return [ratio / other.ratios[name] for name, ratio in self.ratios.items() if name in other.ratios]

    @property
    def repeatability(self) -> float | None:
        """Return half of the width of the 95 % interval within a campaign (0.05: 5 %), the median of all campaigns."""
        intervals = [pair.ratio.interval for pair in self.pairs.values() if pair.ratio.interval]
        return median((high / low) ** 0.5 - 1 for low, high in intervals) if intervals and self.ratios else None


def mean_ratio(ratios: Collection[float]) -> float | None:
    """Return the geometric mean; None of nothing."""
    return float(np.exp(np.log([*ratios]).mean())) if ratios else None


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
    """Return the results of each folder below this one except `other`; raise RecordError if there is none."""
    folders = sorted(path for path in folder.glob("*") if [*path.glob("*.json*")])  # an interrupted one can have none
    folders = [path for path in folders if not (other and path.samefile(other))]
    if not folders:
        raise RecordError(f"{folder} has no campaigns: make campaign")
    return {path.name: group_results(files.load_all([path])) for path in folders}


def combine(campaigns: Campaigns) -> list[Row]:
    """Return a row per configuration, in the order of tables.

    Results of other code, Ray or torch than the newest one are left out.
    """
    found: dict[tuple[Any, ...], dict[str, Result]] = defaultdict(dict)
    for name, results in campaigns.items():
        for result in (result for result in results if result.status == "ok"):
            found[result.table, result.workload, result.configuration][name] = result
    tables: dict[tuple[str, str], list[dict[str, Result]]] = defaultdict(list)
    for (table, workload, _), by_campaign in found.items():
        newest = [*by_campaign.values()][-1]
        kept = {name: r for name, r in by_campaign.items() if r.code == newest.code and None not in r.code}
        tables[table, workload.flow] += [kept] if kept else []
    rows = []
    for measured in tables.values():
        baseline = find_baseline(measured)
        for by_campaign in measured:
            both = [name for name in by_campaign if name in baseline]
            if both:
                rows.append(Row({name: Pair(baseline[name], by_campaign[name]) for name in both}))
    return rows


def find_baseline(measured: Sequence[Mapping[str, Result]]) -> Mapping[str, Result]:
    """Return the demo's queues or plain references, with no flag that others do not have, or else the first one."""
    flags = [next(iter(of.values())).configuration.flags for of in measured]
    shared = set.intersection(*({(name, str(value)) for name, value in of.items()} for of in flags))
    for name in (BASELINE, SIMPLEST):
        for by_campaign, own in zip(measured, flags, strict=True):
            result = next(iter(by_campaign.values()))
            if result.transport.label == name and {(flag, str(value)) for flag, value in own.items()} == shared:
                return by_campaign
    return measured[0]


class Prediction(NamedTuple):
    """What the other campaigns say about the ratio of one configuration in one campaign."""

    campaign: str
    row: Row
    interval: tuple[float, float]

    @property
    def is_right(self) -> bool:
        low, high = self.interval
        return low <= self.row.ratios[self.campaign] <= high


def leave_one_out(rows: Sequence[Row]) -> list[Prediction]:
    """Predict each ratio from the other campaigns, where there are enough of them."""
    found = []
    for row in rows:
        for name in () if row.is_baseline else row.ratios:
            interval = predict([ratio for other, ratio in row.ratios.items() if other != name])
            if interval:
                found.append(Prediction(name, row, interval))
    return found
