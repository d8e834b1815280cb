# SPDX-License-Identifier: Apache-2.0
"""Read from campaigns what copies and page faults took on their machines, and what each configuration costs.

Each run has measured its machine: copies of its messages by one thread, by all cores, and into new memory. A machine is
a boot, because nothing else tells two virtual machines of one kind apart.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median

from dataflow.analysis.campaigns import Campaigns, boot_of
from dataflow.analysis.cost_model import Cost, MachineCosts, Observation, fit, mean_of_known
from dataflow.analysis.result import Result
from dataflow.records.schema import Run

MIN_BYTES = 100 * 2**20  # of an iteration whose copies count: they don't fit into a cache
MIN_FAULTS = 1_000  # of a copy into new memory that counts


@dataclass(frozen=True)
class Rates:
    """What a machine takes: the seconds of a byte that all cores copy, and of a page fault."""

    byte_seconds: float
    fault_seconds: float
    # Of a byte that one thread copies; None: it is not known.
    thread_byte_seconds: float | None = None


Measured = tuple[Result, Rates]  # what a campaign has measured, and what its machine takes


@dataclass(frozen=True)
class ConfigurationCost:
    """What an iteration of a configuration costs, by the mean and by the median of its times."""

    result: Result  # of the newest campaign
    of_mean: Cost
    of_median: Cost


def rates_of(results: Iterable[Result]) -> Rates | None:
    """Return the medians of all runs of a campaign; None if no run has copied enough bytes, or had enough page faults.

    Enough are iterations of MIN_BYTES, and MIN_FAULTS in a copy into new memory.
    """
    byte_seconds: list[float] = []
    thread_byte_seconds: list[float] = []
    seconds_per_fault: list[float] = []
    for result in results:
        size = result.workload.bytes_per_iteration
        is_large = size >= MIN_BYTES
        for run in result.ok_runs:
            if is_large:
                byte_seconds += [seconds / size for seconds in run.memcpy_all_cores_seconds]
            # These copies are by as many threads as --threads says.
            if is_large and result.threads == 1:
                copies = run.memcpy_before_seconds + run.memcpy_after_seconds
                thread_byte_seconds += [seconds / size for seconds in copies]
            if run.cold_copy_faults >= MIN_FAULTS:
                seconds_per_fault.append(fault_seconds(run))
    if not byte_seconds or not seconds_per_fault:
        return None
    return Rates(
        byte_seconds=median(byte_seconds),
        fault_seconds=median(seconds_per_fault),
        thread_byte_seconds=median(thread_byte_seconds) if thread_byte_seconds else None,
    )


def rates_by_boot(campaigns: Campaigns) -> dict[str, Rates]:
    """Return what each machine takes: the geometric mean of its campaigns."""
    of_boots: dict[str, list[Rates]] = defaultdict(list)
    for results in campaigns.values():
        rates = rates_of(results)
        if rates is not None:
            boot = boot_of(results[0])
            of_boots[boot].append(rates)
    means = {}
    for boot, of_boot in of_boots.items():
        means[boot] = mean_of_rates(of_boot)
    return means


def mean_of_rates(several: Sequence[Rates]) -> Rates:
    byte_seconds = []
    fault_seconds = []
    for rates in several:
        byte_seconds.append(rates.byte_seconds)
        fault_seconds.append(rates.fault_seconds)
    return Rates(
        geometric_mean(byte_seconds),
        geometric_mean(fault_seconds),
        mean_of_known(rates.thread_byte_seconds for rates in several),
    )


def fault_seconds(run: Run) -> float:
    """Return what a page fault added to a copy into new memory in a run that has measured copies."""
    warm = median(run.memcpy_before_seconds + run.memcpy_after_seconds)
    cold = median(run.cold_copy_before_seconds + run.cold_copy_after_seconds)
    return (cold - warm) / run.cold_copy_faults


def observe(result: Result, rates: Rates, is_mean: bool) -> Observation:
    """Return the time of a configuration in a campaign: the mean of all iterations, or that of the runs' medians."""
    size = result.workload.bytes_per_iteration
    of_thread = rates.thread_byte_seconds
    costs = MachineCosts(
        boot_of(result),
        size * rates.byte_seconds,
        rates.fault_seconds,
        None if of_thread is None else size * of_thread,
    )
    seconds = fmean(result.seconds) if is_mean else result.typical_median_seconds
    return Observation(costs, seconds, result.faults_per_iteration or 0.0)


def group_measured(campaigns: Campaigns) -> dict[tuple[str, str, str], list[Measured]]:
    """Return the quiet results of each configuration, with what their machines take, in the order of the campaigns."""
    measured: dict[tuple[str, str, str], list[Measured]] = defaultdict(list)
    for results in campaigns.values():
        rates = rates_of(results)
        for result in results:
            if rates is not None and result.status == "ok" and not result.is_disturbed:
                key = result.table, result.workload.flow, result.label
                measured[key].append((result, rates))
    return measured


def fit_campaigns(campaigns: Campaigns) -> list[ConfigurationCost]:
    """Return the cost of each configuration that at least two machines have measured, in the order of the campaigns."""
    measured = group_measured(campaigns)
    costs = [cost_of(of_configuration) for of_configuration in measured.values()]
    return [cost for cost in costs if cost is not None]


def cost_of(measured: Sequence[Measured]) -> ConfigurationCost | None:
    """Return the cost of one configuration; None if fewer than two machines have measured it."""
    newest, _ = measured[-1]
    size = newest.workload.bytes_per_iteration
    fitted = []
    for is_mean in (True, False):
        observations = [observe(result, rates, is_mean) for result, rates in measured]
        fitted.append(fit(observations, size))
    of_mean, of_median = fitted
    if of_mean is None or of_median is None:
        return None
    return ConfigurationCost(newest, of_mean, of_median)
