"""Combine campaigns: the same configurations on several boots, as ratios to a baseline of the same campaign.

Campaigns of one boot are nearly equal, and boots are not. So the boot is the unit: it counts once, with the mean of its
campaigns. Repeatability is how much a ratio varies within a campaign, and reproducibility how much it varies between
boots (docs/method.md).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, geometric_mean, stdev
from typing import Any

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result, group_results
from dataflow.analysis.statistics import CONFIDENCE
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.errors import RecordError
from dataflow.records import files

MIN_BOOTS = 3  # for an interval
ENOUGH_BOOTS = 5  # with fewer, pages have the number of boots beside each interval
Campaigns = Mapping[str, Sequence[Result]]  # by the name of the folder, the oldest first
ByCampaign = dict[str, Result]


@dataclass(frozen=True)
class Factor:
    """How many times as fast one configuration is as another, in each campaign that has both."""

    ratios: Mapping[str, float]  # by campaign
    boots: Mapping[str, str]  # the boot of each campaign

    @cached_property
    def by_boot(self) -> dict[str, float]:
        """Return one ratio per boot: the geometric mean of those of its campaigns."""
        ratios = defaultdict[str, list[float]](list)
        for campaign, ratio in self.ratios.items():
            ratios[self.boots[campaign]].append(ratio)
        return {boot: geometric_mean(of_boot) for boot, of_boot in ratios.items()}

    @property
    def mean(self) -> float:
        """Return the geometric mean of the boots; 0.0 if there is no ratio."""
        return geometric_mean(self.by_boot.values()) if self.by_boot else 0.0

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Return where the ratio of another boot lies with a probability of 95 %; None for fewer than MIN_BOOTS."""
        if len(self.by_boot) < MIN_BOOTS:
            return None
        return predict(self.by_boot.values())


class Row:
    """One configuration, and the baseline of its table, in each campaign that measured both with the newest code."""

    def __init__(self, pairs: Mapping[str, Pair]) -> None:
        self.pairs = pairs  # by campaign; `old` is the baseline
        newest_pair = [*pairs.values()][-1]
        self.baseline, self.newest = newest_pair.sides
        self.is_baseline = self.baseline is self.newest
        # Equal for the same ratio of other campaigns: the configuration and the baseline.
        self.key = (key_of(self.newest), key_of(self.baseline))
        # Whether the baseline does the same work, so that its time may be divided.
        self.is_comparable = all(pair.old.work == pair.new.work for pair in pairs.values())
        ratios: dict[str, float] = {}
        if self.is_comparable:
            ratios = {name: 1 / pair.ratio.value for name, pair in pairs.items()}
        boots = {name: boot_of(pair.new) for name, pair in pairs.items()}
        self.boots = {*boots.values()}
        self.factor = Factor(ratios, boots)

    def divide(self, other: "Row") -> Factor:
        """Return how many times as fast as another configuration it was, in each campaign that has both."""
        theirs = other.factor.ratios
        ours = self.factor.ratios
        ratios = {name: ratio / theirs[name] for name, ratio in ours.items() if name in theirs}
        return Factor(ratios, self.factor.boots)

    @property
    def repeatability(self) -> float | None:
        """Return what multiplies and divides a ratio for the ends of its interval in a campaign; the largest of all."""
        if self.is_baseline or not self.is_comparable:
            return None
        intervals = [pair.ratio.interval for pair in self.pairs.values()]
        known = [ends for ends in intervals if ends]
        return max((sqrt(high / low) for low, high in known), default=None)

    @property
    def peak_memory_bytes(self) -> int:
        """Return the largest sum of the peak memory of all processes, of all campaigns."""
        return max(pair.new.peak_memory_bytes for pair in self.pairs.values())


def key_of(result: Result) -> tuple[Any, ...]:
    """Return what is equal for the same configuration in other campaigns."""
    return result.table, result.workload, result.configuration


def boot_of(result: Result) -> str:
    """Return the boot of a result; all unknown boots are one, so that they never narrow an interval."""
    environment = result.environments[0] if result.environments else {}
    return str(environment.get("boot"))


def predict(ratios: Collection[float]) -> tuple[float, float]:
    """Return where the ratio of one more boot lies with a probability of 95 %, from at least two boots.

    The logarithms of the ratios are taken as a sample of a normal distribution (Student's t, prediction interval).
    """
    count = len(ratios)
    logarithms = [log(ratio) for ratio in ratios]
    half = student_quantile(count - 1) * stdev(logarithms) * sqrt(1 + 1 / count)
    middle = fmean(logarithms)
    return exp(middle - half), exp(middle + half)


@cache
def student_quantile(degrees_of_freedom: int) -> float:
    """Return how many standard errors an interval of 95 % has on each side."""
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, degrees_of_freedom))


def load_campaigns(folder: Path, other: Path | None = None) -> Campaigns:
    """Return the results of each folder below this one except `other`; raise RecordError if there is none.

    The results of a table share their reference times, as in the tables of one measurement.
    """
    # An interrupted campaign can have no record.
    folders = sorted(path for path in folder.glob("*") if [*path.glob("*.json*")])
    if other:
        folders = [path for path in folders if not path.samefile(other)]
    if not folders:
        raise RecordError(f"{folder} has no campaigns: make campaign")
    return {path.name: load_campaign(path) for path in folders}


def load_campaign(folder: Path) -> list[Result]:
    """Return the results of one campaign; those of a table share their reference times."""
    alone = group_results(files.load_all([folder]))
    tables = defaultdict[str, list[Result]](list)
    for result in alone:
        tables[result.table].append(result)
    return [Result(result.records, tables[result.table]) for result in alone]


def combine(campaigns: Campaigns) -> list[Row]:
    """Return a row per configuration, in the order of tables.

    Results of other code, Ray or torch than the newest one are left out.
    """
    rows = []
    for configurations in group_by_table(campaigns):
        measured = [keep_newest_code(by_campaign) for by_campaign in configurations]
        baseline = find_baseline([kept for kept in measured if kept])
        for kept in measured:
            both = [name for name in kept if name in baseline]
            if both:
                rows.append(Row({name: Pair(baseline[name], kept[name]) for name in both}))
    return rows


def group_by_table(campaigns: Campaigns) -> Iterable[Collection[ByCampaign]]:
    """Return, for each table and flow, the ok results of each configuration by campaign."""
    tables: dict[Any, dict[Any, ByCampaign]] = defaultdict(lambda: defaultdict(dict))
    for name, results in campaigns.items():
        for result in results:
            if result.status == "ok" and not result.is_disturbed:
                configurations = tables[result.table, result.workload.flow]
                configurations[key_of(result)][name] = result
    return [configurations.values() for configurations in tables.values()]


def keep_newest_code(by_campaign: ByCampaign) -> ByCampaign:
    """Return the campaigns with the code of the newest one; none if a part of it is unknown."""
    newest = [*by_campaign.values()][-1].code
    if None in newest:
        return {}
    return {name: result for name, result in by_campaign.items() if result.code == newest}


def find_baseline(measured: Sequence[ByCampaign]) -> ByCampaign:
    """Return the demo's queues or plain references, with no flag that others do not have, or else the first one."""
    firsts = [next(iter(by_campaign.values())) for by_campaign in measured]
    flags = [flags_of(result) for result in firsts]
    for name in (BASELINE, SIMPLEST):
        for by_campaign, result, own in zip(measured, firsts, flags, strict=True):
            if result.transport.label == name and own == set.intersection(*flags):
                return by_campaign
    return measured[0] if measured else {}


def flags_of(result: Result) -> set[tuple[str, str]]:
    """Return the flags of a configuration with their values."""
    return {(name, str(value)) for name, value in result.configuration.flags.items()}


def leave_one_out(rows: Sequence[Row]) -> dict[str, dict[Row, bool]]:
    """Return, by boot, whether each of its ratios lies where the other boots say.

    All campaigns of the boot are left out. Ratios that fewer than two other boots have are not checked.
    """
    is_inside = defaultdict[str, dict[Row, bool]](dict)
    for row in rows:
        if row.is_baseline:
            continue
        for boot, ratio in row.factor.by_boot.items():
            others = [other for name, other in row.factor.by_boot.items() if name != boot]
            if len(others) >= MIN_BOOTS - 1:
                low, high = predict(others)
                is_inside[boot][row] = low <= ratio <= high
    return is_inside
