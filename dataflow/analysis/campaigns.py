# SPDX-License-Identifier: Apache-2.0
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
ENOUGH_BOOTS = 5  # with fewer, `dataflow compare` has the number of boots beside each interval
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
    """One configuration, and the baseline of its table, in each campaign that measured both."""

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
        boots: dict[str, str] = {}
        for name, pair in pairs.items():
            boots[name] = boot_of(pair.new)
            if self.is_comparable:
                ratios[name] = 1 / pair.ratio.value
        self.boots = {*boots.values()}
        self.factor = Factor(ratios, boots)

    def divide(self, other: "Row") -> Factor:
        """Return how many times as fast as another configuration it was, in each campaign that has both."""
        theirs = other.factor.ratios
        ratios = {}
        for name, ratio in self.factor.ratios.items():
            if name in theirs:
                ratios[name] = ratio / theirs[name]
        return Factor(ratios, self.factor.boots)

    @property
    def repeatability(self) -> float | None:
        """Return what multiplies and divides a ratio for the ends of its interval in a campaign; the largest of all."""
        if self.is_baseline or not self.is_comparable:
            return None
        largest = None
        for pair in self.pairs.values():
            if pair.ratio.interval:
                low, high = pair.ratio.interval
                change = sqrt(high / low)
                largest = max(change, largest or change)
        return largest

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


def load_campaigns(folder: Path) -> Campaigns:
    """Return the results of each folder below this one; raise RecordError if there is none.

    The results of a table share their reference times, as in the tables of one measurement.
    """
    campaigns = {}
    for path in sorted(folder.glob("*")):
        # An interrupted campaign can have no record.
        if any(path.glob("*.json*")):
            campaigns[path.name] = load_campaign(path)
    if not campaigns:
        raise RecordError(f"{folder} has no campaigns: make campaign")
    return campaigns


def load_campaign(folder: Path) -> list[Result]:
    """Return the results of one campaign; those of a table share their reference times."""
    alone = group_results(files.load_all([folder]))
    tables = defaultdict[str, list[Result]](list)
    for result in alone:
        tables[result.table].append(result)
    return [Result(result.records, tables[result.table]) for result in alone]


def of_other_boots(campaigns: Campaigns, results: Sequence[Result]) -> Campaigns:
    """Return the campaigns whose boots these results do not have: those that can confirm them."""
    boots = boots_of(results)
    return {
        name: of_campaign
        for name, of_campaign in campaigns.items()
        if boots.isdisjoint(boots_of(of_campaign))
    }


def boots_of(results: Sequence[Result]) -> set[str]:
    """Return the boots of the measured results. A skipped one has none."""
    return {boot_of(result) for result in results if result.status == "ok"}


def combine(campaigns: Campaigns) -> list[Row]:
    """Return a row per configuration, in the order of tables, without campaigns that newer ones replace."""
    rows = []
    for configurations in group_by_table(campaigns):
        newest = [keep_newest(by_campaign) for by_campaign in configurations]
        measured = [kept for kept in newest if kept]
        baseline = find_baseline(measured)
        for kept in measured:
            pairs = {}
            for name, result in kept.items():
                if name in baseline:
                    pairs[name] = Pair(baseline[name], result)
            if pairs:
                rows.append(Row(pairs))
    return rows


def group_by_table(campaigns: Campaigns) -> Iterable[Collection[ByCampaign]]:
    """Return, for each table and flow, the ok results of each configuration by campaign."""
    tables: dict[Any, dict[Any, ByCampaign]] = defaultdict(lambda: defaultdict(dict))
    for name, results in campaigns.items():
        for result in results:
            if result.status != "ok" or result.is_disturbed:
                continue
            workload = result.workload
            table = (result.table, workload.flow, workload.changing_sizes)
            by_campaign = tables[table][key_of(result)]
            by_campaign[name] = result
    return [configurations.values() for configurations in tables.values()]


def keep_newest(by_campaign: ByCampaign) -> ByCampaign:
    """Return the campaigns with the Ray and torch of the newest one, of each boot only those with its newest code.

    Boots may differ in the code inside the clock, because a ratio has two results of one campaign. Notes below tables
    name the codes. A campaign with an unknown code or version is left out.
    """
    newest = [*by_campaign.values()][-1]
    known = {}
    code_of_boots = {}
    for name, result in by_campaign.items():
        if None not in result.code and result.versions == newest.versions:
            known[name] = result
            code_of_boots[boot_of(result)] = result.code
    return {
        name: result
        for name, result in known.items()
        if result.code == code_of_boots[boot_of(result)]
    }


def find_baseline(measured: Sequence[ByCampaign]) -> ByCampaign:
    """Return the demo's queues or plain references, with no flag that others do not have, or else the first one."""
    if not measured:
        return {}
    shared = set.intersection(*map(flags_of, measured))
    for name in (BASELINE, SIMPLEST):
        for by_campaign in measured:
            transport = first_of(by_campaign).transport
            if transport.label == name and flags_of(by_campaign) == shared:
                return by_campaign
    return measured[0]


def first_of(by_campaign: ByCampaign) -> Result:
    return next(iter(by_campaign.values()))


def flags_of(by_campaign: ByCampaign) -> set[tuple[str, str]]:
    """Return the flags of a configuration with their values."""
    flags = first_of(by_campaign).configuration.flags
    return {(name, str(value)) for name, value in flags.items()}


def leave_one_out(rows: Sequence[Row]) -> dict[str, dict[Row, bool]]:
    """Return, by boot, whether each of its ratios lies where the other boots say.

    All campaigns of the boot are left out. Ratios that fewer than two other boots have are not checked.
    """
    is_inside = defaultdict[str, dict[Row, bool]](dict)
    for row in rows:
        if row.is_baseline:
            continue
        for boot, ratio in row.factor.by_boot.items():
            others = dict(row.factor.by_boot)
            del others[boot]
            if len(others) >= MIN_BOOTS - 1:
                low, high = predict(others.values())
                is_inside[boot][row] = low <= ratio <= high
    return is_inside
