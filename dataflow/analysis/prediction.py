# SPDX-License-Identifier: Apache-2.0
"""Predict the time of an iteration on a machine from what a copy and a page fault take there (pure functions).

    seconds = copies x A + page faults x F + fixed seconds

A is the time in which as many threads copy the bytes of an iteration once as actors work at the same time. At least as
many count as the machines of the campaigns have cores, because copies were fitted to times of all of their cores.

Some configurations seem to copy with one thread at a time, so more cores don't help them. Machines that are left out
say which: if each machine of the campaigns is predicted from the others, copies by one thread come closer to its times
than copies by all cores. On a machine with another number of cores, these configurations are predicted by one thread,
or by one for each two actors that work at the same time. With the cores of the campaigns, all cores count for all.

An interval is wider than that of the fit if a machine differs from those of the campaigns. With another number of
cores, it is not known how many of them a copy uses. If copies are faster or slower than on all of those machines, the
fixed seconds may be faster or slower, too. It is also wider for other messages than those of the campaigns, and unknown
for small ones and for many tensors: calls and tensors take time that is neither a copy nor a page fault.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median

from dataflow.analysis.cost_model import SMALL_BYTES, MachineCosts
from dataflow.analysis.stored_costs import CostFile, FittedMachine, StoredCost
from dataflow.flows.flow import DRIVER, Flow
from dataflow.flows.message import ACKNOWLEDGEMENT
from dataflow.machine.samples import MachineSamples

FITTED_CORES = 2  # of all machines of the campaigns
TABLE = "headline"  # of campaigns: messages of 32 to 160 MiB
# Published records of other large messages lie within this factor (a test counts them).
OTHER_MESSAGES = 2.0
MIN_BYTES = 16 * 2**20  # of an iteration whose messages are large
MIN_TENSOR_BYTES = 2**20  # of its tensors on average
SAME_BYTES = 0.01  # difference from the bytes of the campaigns, up to which the messages are theirs
RETAINED = "--retain-memory"
# Seconds of a page fault, from bare metal to memory that a hypervisor has taken back.
LOWEST_PRICE = 0.05e-6
HIGHEST_PRICE = 15e-6
LEAST_FAULT_SECONDS = 1e-9  # less is an error of the measurement
HOLDS = 0.15  # of the measured time, within which a prediction holds
# Different in copies and page faults: most of both, few page faults, and a compiled graph.
CHECKED = ("store driver-queue", "store refs --retain-memory", "graph shm")


@dataclass(frozen=True)
class MachineSpeed:
    """At how many bytes per second a machine copies large messages, by threads, and what a page fault takes there."""

    name: str
    cores: int
    rates: Mapping[int, float]  # with that of all cores
    fault_seconds: float
    paused_fault_seconds: float | None = None  # of memory that was freed some seconds before

    def rate(self, threads: int) -> float:
        """Return the bytes per second that so many threads copy together.

        Between two numbers of threads that are known, it grows in proportion until it reaches that of the larger one.
        Below all of them, it is the geometric mean of two extremes: an equal share per thread, and the whole rate.
        """
        wanted = min(threads, self.cores)
        above = min(count for count in self.rates if count >= wanted)
        if above == wanted:
            return self.rates[above]
        below = max((count for count in self.rates if count < wanted), default=None)
        if below is None:
            return self.rates[above] * sqrt(wanted / above)
        return min(self.rates[above], self.rates[below] * wanted / below)

    @property
    def highest_rate(self) -> float:
        return max(self.rates.values())

    @property
    def lowest_rate(self) -> float:
        """Return the bytes per second of one thread, or the least that they can be if they are not known."""
        fewest = min(self.rates)
        share = self.rates[fewest] / fewest
        return min(share, *self.rates.values())


def speed_of_samples(machine: MachineSamples, name: str, size: int) -> MachineSpeed:
    """Return what was measured of a machine for messages of so many bytes per iteration: medians."""
    counts = sorted({copies.threads for copies in machine.warm_copies})
    rates = {count: median(machine.copies_of(size, count).rates) for count in counts}
    fault = max(LEAST_FAULT_SECONDS, median(machine.fault_seconds(machine.just_freed)))
    paused = median(machine.fault_seconds(machine.freed_before))
    return MachineSpeed(name, machine.cores, rates, fault, paused)


@dataclass(frozen=True)
class Copying:
    """How many copies of an iteration's bytes a prediction counts, and how many threads share the work of each."""

    copies: float
    threads: int
    # Whether `copies` are StoredCost.thread_copies: then each group of FITTED_CORES actors copies with one thread.
    is_fitted_to_one: bool


@dataclass(frozen=True)
class Prediction:
    """The time of an iteration of a configuration on a machine."""

    cost: StoredCost
    seconds: float
    interval: tuple[float, float] | None  # in seconds; None: it is not known
    faults: float
    fixed_seconds: float  # of these messages, for which neither copies nor page faults account
    limit_seconds: float  # one copy of all bytes by all cores
    copying: Copying

    @property
    def is_kept(self) -> bool:
        """Return whether processes keep memory that they have freed."""
        return RETAINED in self.cost.configuration.split()

    @property
    def base(self) -> str:
        """Return the name of the configuration without RETAINED."""
        words = self.cost.configuration.split()
        return " ".join(word for word in words if word != RETAINED)


@dataclass(frozen=True)
class FlowVolume:
    """What an iteration of a flow moves."""

    flow: str
    bytes: int
    tensors: int  # one for each reader of it
    workers: int  # actors that send, or read, at the same time

    @property
    def tensor_bytes(self) -> float:
        """Return the mean bytes of a tensor."""
        return self.bytes / max(1, self.tensors)

    @property
    def is_large(self) -> bool:
        return self.bytes >= MIN_BYTES and self.tensor_bytes >= MIN_TENSOR_BYTES

    def is_that_of(self, cost: StoredCost) -> bool:
        """Return whether a campaign has measured these messages."""
        difference = abs(self.bytes / cost.iteration_bytes - 1)
        return self.flow == cost.flow and difference <= SAME_BYTES

    def threads(self, cores: int) -> int:
        """Return how many threads copy at the same time in A."""
        return min(cores, max(FITTED_CORES, self.workers))


def choose_copying(cost: StoredCost, cores: int, volume: FlowVolume) -> Copying:
    """Return how many copies count on a machine with so many cores, and by how many threads.

    With the cores of the campaigns, or without `thread_copies`, they are those by the threads of A. Else they are those
    by one thread, and each group of FITTED_CORES actors that work at the same time has one.
    """
    has_fitted_cores = cores == FITTED_CORES
    if cost.thread_copies is None or has_fitted_cores:
        return Copying(cost.copies, volume.threads(cores), is_fitted_to_one=False)
    groups_of_actors = max(1, volume.workers // FITTED_CORES)
    threads = min(cores, groups_of_actors)
    return Copying(cost.thread_copies, threads, is_fitted_to_one=True)


def measure_flow(flow: Flow) -> FlowVolume:
    tensors = 0
    for edge in flow.edges:
        if edge.message != ACKNOWLEDGEMENT:
            tensors += sum(max(1, len(field.lengths)) for field in edge.message.fields)
    return FlowVolume(flow.name, flow.bytes_per_iteration, tensors, count_workers(flow))


def count_workers(flow: Flow) -> int:
    """Return how many actors send, or read, at the same time, if messages that can travel together do so."""
    depths = {DRIVER: 0}
    for task in flow.tasks:
        depths[task.name] = 1 + max(depths[source] for source in task.reads)
    senders: dict[int, set[str]] = defaultdict(set)
    readers: dict[int, set[str]] = defaultdict(set)
    for edge in flow.edges:
        depth = depths[edge.source]
        senders[depth].add(flow.actor(edge.source))
        readers[depth].add(flow.actor(edge.reader))
    groups = [*senders.values(), *readers.values()]
    return max(len(actors) for actors in groups)


def choose_table(stored: CostFile, volume: FlowVolume) -> str | None:
    """Return the table of campaigns that predicts a flow: one with this flow, or that of large messages.

    None if the messages are small, and no table has this flow: their times hardly depend on bytes.
    """
    is_small = volume.bytes < SMALL_BYTES
    found = []
    for cost in stored.costs:
        is_fitted_small = cost.iteration_bytes < SMALL_BYTES
        if cost.flow == volume.flow and is_fitted_small == is_small:
            found.append(cost.table)
    if not found:
        return None if is_small else TABLE
    return TABLE if TABLE in found else found[0]


def predict(
    speed: MachineSpeed, stored: CostFile, table: str, volume: FlowVolume
) -> list[Prediction]:
    """Return the predictions for a flow, the fastest first."""
    costs = [cost for cost in stored.costs if cost.table == table]
    predictions = [predict_one(speed, cost, stored.machines, volume) for cost in costs]
    return sorted(predictions, key=lambda prediction: prediction.seconds)


def predict_one(
    speed: MachineSpeed,
    cost: StoredCost,
    machines: Sequence[FittedMachine],
    volume: FlowVolume,
) -> Prediction:
    """Return the prediction of one configuration for the messages of a flow, scaled by their bytes."""
    size = volume.bytes
    scale = size / cost.iteration_bytes
    return Prediction(
        cost,
        find_seconds(speed, cost, volume),
        find_interval(speed, cost, machines, volume),
        faults=scale * cost.faults,
        fixed_seconds=scale * cost.fixed_seconds,
        limit_seconds=size / speed.rate(speed.cores),
        copying=choose_copying(cost, speed.cores, volume),
    )


def find_seconds(speed: MachineSpeed, cost: StoredCost, volume: FlowVolume) -> float:
    """Return the predicted seconds of an iteration of a configuration."""
    copying = choose_copying(cost, speed.cores, volume)
    copy_seconds = volume.bytes / speed.rate(copying.threads)
    costs = MachineCosts(speed.name, copy_seconds, speed.fault_seconds)
    return cost.seconds_on(costs, volume.bytes, copying.copies)


@dataclass(frozen=True)
class PossibleRates:
    """The bytes per second of copies on a machine: those that are expected, and the extremes that are possible."""

    expected: float
    lowest: float
    highest: float


def find_possible_rates(speed: MachineSpeed, volume: FlowVolume) -> PossibleRates:
    """Return the bytes per second of copies; with other cores than the fit, it is not known how many of them copy."""
    expected = speed.rate(volume.threads(speed.cores))
    if speed.cores == FITTED_CORES:
        return PossibleRates(expected, lowest=expected, highest=expected)
    # With fewer cores, work that was done at the same time is done one after the other.
    share_at_once = min(1.0, speed.cores / FITTED_CORES)
    lowest = min(expected, speed.lowest_rate) * share_at_once
    highest = max(expected, speed.highest_rate)
    return PossibleRates(expected, lowest, highest)


def find_interval(
    speed: MachineSpeed,
    cost: StoredCost,
    machines: Sequence[FittedMachine],
    volume: FlowVolume,
) -> tuple[float, float] | None:
    """Return between which seconds an iteration takes with 95 %; None if that is not known.

    It is that of the fit, around the fastest and the slowest iteration that are possible: with other cores than those
    of the fit, copies may be faster or slower, and so may fixed seconds where copies are unlike all of the fit.
    """
    factor = factor_for(cost, volume)
    if factor is None:
        return None
    scale = volume.bytes / cost.iteration_bytes
    faults = scale * cost.faults * speed.fault_seconds
    fixed = scale * cost.fixed_seconds
    copied_bytes = cost.copies * volume.bytes
    rates = find_possible_rates(speed, volume)
    # What is fixed may take longer on a machine that copies more slowly than all of the fit, and less on a faster one.
    slowness = distance_from_fit(1 / rates.expected, machines)
    low = copied_bytes / rates.highest + faults + fixed * min(1.0, slowness)
    high = copied_bytes / rates.lowest + faults + fixed * max(1.0, slowness)
    # Copies by one thread have another number, so the predicted time can lie outside of these.
    seconds = find_seconds(speed, cost, volume)
    return min(low, seconds) / factor, max(high, seconds) * factor


def factor_for(cost: StoredCost, volume: FlowVolume) -> float | None:
    """Return what multiplies and divides a prediction for 95 %: that of the fit, and for other messages that of these.

    None if one of them is not known.
    """
    if cost.factor is None or volume.is_that_of(cost):
        return cost.factor
    if not volume.is_large:
        return None
    both = log(cost.factor) ** 2 + log(OTHER_MESSAGES) ** 2
    return exp(sqrt(both))


def distance_from_fit(byte_seconds: float, machines: Sequence[FittedMachine]) -> float:
    """Return by which factor a byte takes longer (or, below 1, less long) than on each machine of the campaigns."""
    fitted = [machine.byte_seconds for machine in machines]
    nearest = min(max(byte_seconds, min(fitted)), max(fitted))
    return byte_seconds / nearest


def find_gains(predictions: Sequence[Prediction]) -> dict[str, float]:
    """Return how many times as fast each configuration is if its processes keep freed memory."""
    plain = {item.base: item.seconds for item in predictions if not item.is_kept}
    gains = {}
    for item in predictions:
        if item.is_kept and item.base in plain:
            gains[item.base] = plain[item.base] / item.seconds
    return gains


@dataclass(frozen=True)
class Crossing:
    """The price of a page fault above which a configuration that keeps memory is faster than one that does not."""

    fault_seconds: float
    kept: str
    plain: str


def find_crossings(speed: MachineSpeed, predictions: Sequence[Prediction]) -> list[Crossing]:
    """Return the prices at which the order of two configurations changes, that nearest to this machine's first.

    There is at most one for each configuration that keeps memory. Both do the same work.
    """

    def distance(crossing: Crossing) -> float:
        ratio = crossing.fault_seconds / speed.fault_seconds
        return max(ratio, 1 / ratio)

    nearest = []
    for kept in predictions:
        alike = [item for item in predictions if item.cost.work == kept.cost.work]
        crossings = crossings_of(speed, kept, alike) if kept.is_kept else []
        if crossings:
            nearest.append(min(crossings, key=distance))
    return sorted(nearest, key=distance)


def crossings_of(
    speed: MachineSpeed, kept: Prediction, others: Sequence[Prediction]
) -> list[Crossing]:
    """Return the prices above which `kept` is faster than each of the others that keeps no memory."""
    crossings = []
    for other in others:
        price = price_of_crossing(speed, kept, other)
        if not other.is_kept and LOWEST_PRICE <= price <= HIGHEST_PRICE:
            names = kept.cost.configuration, other.cost.configuration
            crossings.append(Crossing(price, *names))
    return crossings


def price_of_crossing(speed: MachineSpeed, kept: Prediction, plain: Prediction) -> float:
    """Return the seconds of a page fault with which both take equally long; 0.0 if `kept` has not fewer of them."""
    more_faults = plain.faults - kept.faults
    if more_faults <= 0:
        return 0.0
    kept_seconds = kept.seconds - kept.faults * speed.fault_seconds
    plain_seconds = plain.seconds - plain.faults * speed.fault_seconds
    return (kept_seconds - plain_seconds) / more_faults


@dataclass(frozen=True)
class Check:
    """What was predicted of a configuration before it was measured, and the mean of its times."""

    prediction: Prediction
    measured_seconds: float | None  # None: no run counts
    measured_faults: float | None

    @property
    def holds(self) -> bool:
        if self.measured_seconds is None:
            return False
        error = abs(self.prediction.seconds - self.measured_seconds)
        return error <= HOLDS * self.measured_seconds


def choose_checked(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return three configurations that differ: CHECKED, or the fastest, the middle and the slowest one."""
    by_name = {item.cost.configuration: item for item in predictions}
    if by_name.keys() >= {*CHECKED}:
        return [by_name[name] for name in CHECKED]
    middle = len(predictions) // 2
    positions = sorted({0, middle, len(predictions) - 1})
    return [predictions[position] for position in positions]


def mean_seconds(seconds: Sequence[float]) -> float | None:
    """Return the mean, to which costs were fitted; None without any."""
    return fmean(seconds) if seconds else None
