# SPDX-License-Identifier: Apache-2.0
"""Explain the time of an iteration with two numbers of the machine: what a copy takes, and what a page fault takes.

    seconds = copies x A + page faults x F + fixed seconds

A: the seconds in which all cores copy the bytes of an iteration once. F: the seconds of a page fault. Both are measured
on any machine (`dataflow machine`). Page faults are counted. Copies, and sometimes a fixed time, are fitted
to the times on several machines. So the pair (copies, page faults) belongs to a configuration and not to a machine.
Small messages take a fixed time, because their bytes hardly matter.

Some configurations copy with one thread at a time, whatever the number of cores. So copies are also fitted with the
seconds in which one thread copies the bytes. They are kept beside the others where they predict machines better that
are left out one by one. Pages show copies by all cores.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log, sqrt
from statistics import fmean, geometric_mean

from dataflow.analysis.campaigns import student_quantile

MIN_MACHINES = 2  # for a fit of one number
MIN_MACHINES_BOTH = 3  # for a fit of copies and a fixed time
MAX_ERROR = 0.20  # of what the fit leaves (rms), above which a configuration is not explained
BETTER = 0.7  # of the error of copies alone, below which both are fitted, when machines are left out one by one
SMALL_BYTES = 2**20  # of an iteration, below which its time is fixed


@dataclass(frozen=True)
class MachineCosts:
    """What one copy of an iteration's bytes takes on a machine, and what a page fault takes."""

    machine: str  # a name that differs between machines
    # By all cores, or by the threads whose copies are counted: price_by_thread and prediction.py replace it.
    copy_seconds: float
    fault_seconds: float
    thread_copy_seconds: float | None = None  # by one thread; None: it is not known


@dataclass(frozen=True)
class Observation:
    """The time of an iteration on a machine, with the page faults that were counted."""

    costs: MachineCosts
    seconds: float
    faults: float


@dataclass(frozen=True)
class Cost:
    """What an iteration of a configuration costs on any machine, and how well that explains its times."""

    copies: float
    faults: float
    fixed_seconds: float
    error: float  # rms over machines of log(predicted / measured)
    machines: int
    numbers: int  # that were fitted
    # By one thread, without a fixed time; None: copies by all cores predict left-out machines better.
    thread_copies: float | None = None

    @property
    def is_explained(self) -> bool:
        return self.error <= MAX_ERROR

    @property
    def factor(self) -> float:
        """Return what multiplies and divides a prediction for one more machine, for an interval of 95 %.

        It is infinite if no machine is left besides those that the numbers need.
        """
        freedom = self.machines - self.numbers
        if freedom < 1:
            return inf
        spread = self.error * sqrt(self.machines / freedom)
        return exp(student_quantile(freedom) * spread * sqrt(1 + 1 / self.machines))

    def seconds_on(self, costs: MachineCosts, faults: float | None = None) -> float:
        """Return the seconds of an iteration on a machine; `faults` in place of the usual number of page faults."""
        counted = self.faults if faults is None else faults
        copying = self.copies * costs.copy_seconds
        return copying + counted * costs.fault_seconds + self.fixed_seconds


@dataclass(frozen=True)
class FittedNumbers:
    """Which numbers are fitted, where the search begins, and how they become copies and a fixed time."""

    start: Callable[[Sequence[Observation]], list[float]]
    split: Callable[[Sequence[float]], tuple[float, float]]


def start_of_copies(known: Sequence[Observation]) -> list[float]:
    return [geometric_mean(item.seconds / item.costs.copy_seconds for item in known)]


def start_of_fixed(known: Sequence[Observation]) -> list[float]:
    return [geometric_mean(item.seconds for item in known)]


def start_of_both(known: Sequence[Observation]) -> list[float]:
    """Return the start for copies and a fixed time: each explains about a half."""
    return [start_of_copies(known)[0] / 2, min(item.seconds for item in known) / 2]


COPIES = FittedNumbers(start_of_copies, lambda numbers: (numbers[0], 0.0))
FIXED = FittedNumbers(start_of_fixed, lambda numbers: (0.0, numbers[0]))
BOTH = FittedNumbers(start_of_both, lambda numbers: (numbers[0], numbers[1]))


def fit(observations: Sequence[Observation], iteration_bytes: int) -> Cost | None:
    """Return the cost that explains the times of a configuration best; None for fewer than MIN_MACHINES.

    Copies have a fixed time beside them only if that predicts machines clearly better that are left out one by one.
    Without it, they are also fitted by one thread.
    """
    known = by_machine(observations)
    if len(known) < MIN_MACHINES:
        return None
    if iteration_bytes < SMALL_BYTES:
        return fit_numbers(FIXED, known)
    if len(known) < MIN_MACHINES_BOTH:
        return fit_numbers(COPIES, known)
    error_of_copies = error_of_left_out(COPIES, known)
    error_of_both = error_of_left_out(BOTH, known)
    if error_of_both < BETTER * error_of_copies:
        return fit_numbers(BOTH, known)
    cost = fit_numbers(COPIES, known)
    thread_copies = fit_thread_copies(known, error_of_copies)
    return replace(cost, thread_copies=thread_copies)


def fit_thread_copies(known: Sequence[Observation], error_of_all_cores: float) -> float | None:
    """Return the copies by one thread; None if those by all cores predict left-out machines as well, or better.

    Also None if a machine has not measured copies by one thread.
    """
    by_thread = price_by_thread(known)
    if not by_thread:
        return None
    error_of_thread = error_of_left_out(COPIES, by_thread)
    if error_of_thread >= error_of_all_cores:
        return None
    return fit_numbers(COPIES, by_thread).copies


def price_by_thread(known: Sequence[Observation]) -> list[Observation]:
    """Return the observations with one thread in place of all cores; [] if a machine has not measured that.

    In them, `copy_seconds` is that of one thread, so a fit to them gives copies by one thread.
    """
    priced = []
    for item in known:
        seconds = item.costs.thread_copy_seconds
        if seconds is None:
            return []
        costs = replace(item.costs, copy_seconds=seconds)
        priced.append(replace(item, costs=costs))
    return priced


def by_machine(observations: Sequence[Observation]) -> list[Observation]:
    """Return one observation per machine, the geometric mean: several campaigns of one machine are nearly equal."""
    groups: dict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        groups[observation.costs.machine].append(observation)
    return [mean_of(of_machine) for of_machine in groups.values()]


def mean_of(observations: Sequence[Observation]) -> Observation:
    """Return the geometric mean of observations of one machine. Page faults, which can be 0, have the usual mean."""
    costs = MachineCosts(
        observations[0].costs.machine,
        geometric_mean(item.costs.copy_seconds for item in observations),
        geometric_mean(item.costs.fault_seconds for item in observations),
        mean_of_known(item.costs.thread_copy_seconds for item in observations),
    )
    seconds = geometric_mean(item.seconds for item in observations)
    faults = fmean(item.faults for item in observations)
    return Observation(costs, seconds, faults)


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean without the values that are None; None if no other is left."""
    known = [value for value in values if value is not None]
    return geometric_mean(known) if known else None


def fit_numbers(form: FittedNumbers, known: Sequence[Observation]) -> Cost:
    """Return the cost with the least sum of squares of log(predicted / measured). No number is below 0."""
    # Importing scipy takes half a second, which a prediction does not need.
    from scipy.optimize import least_squares

    start = form.start(known)
    faults = fmean(item.faults for item in known)

    def cost_of(numbers: Sequence[float], error: float = 0.0) -> Cost:
        copies, fixed = form.split(numbers)
        return Cost(float(copies), faults, float(fixed), error, len(known), len(start))

    found = least_squares(
        lambda numbers: errors_of(cost_of(numbers), known), start, bounds=(0.0, inf), x_scale=start
    )
    return cost_of(found.x, rms(found.fun))


def errors_of(cost: Cost, known: Sequence[Observation]) -> list[float]:
    """Return log(predicted / measured) of each observation, with the page faults that were counted there."""
    errors = []
    for item in known:
        predicted = cost.seconds_on(item.costs, item.faults)
        errors.append(log(max(predicted, 1e-12) / item.seconds))
    return errors


def error_of_left_out(form: FittedNumbers, known: Sequence[Observation]) -> float:
    """Return the rms of log(predicted / measured) of each machine, predicted from the others."""
    errors = []
    for position, left_out in enumerate(known):
        others = [*known[:position], *known[position + 1 :]]
        errors += errors_of(fit_numbers(form, others), [left_out])
    return rms(errors)


def rms(errors: Sequence[float]) -> float:
    """Return the square root of the mean of squares."""
    return sqrt(fmean(error**2 for error in errors))
