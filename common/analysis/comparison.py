"""Compare results: a configuration with the one that it extends, and two measurements with each other."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from common.analysis.result import Result
from common.analysis.statistics import Ratio, RunSeconds, ratio, ratio_of_pairs, typical_seconds
from common.errors import RecordError
from common.records.environment import MACHINE_KEYS
from common.records.schema import Configuration, Workload
from common.transports.catalogue import CONFIGURATIONS


def find_result(results: Iterable[Result], workload: Workload, configuration: Configuration) -> Result | None:
    """Return the first ok result of this workload and configuration; None if there is none."""
    for result in results:
        if result.configuration == configuration and result.workload == workload and result.status == "ok":
            return result
    return None


def compared_result(result: Result, results: Iterable[Result]) -> Result | None:
    """Return the result of the configuration that this one extends, with the same workload, device and layout."""
    if result.variant is None or not result.variant.compared_with:
        return None
    other = CONFIGURATIONS[result.variant.compared_with]
    transport, layout, device = other.transport, result.configuration.layout, result.configuration.device
    configuration = Configuration(transport.runtime.name, transport.name, dict(other.flags), device, layout)
    return find_result(results, result.workload, configuration)


class Pair:
    """Two results whose times are compared."""

    def __init__(self, old: Result, new: Result) -> None:
        self.old, self.new = old, new
        self.label = new.label if new.label == old.label else f"{new.label} / {old.label}"
        old_failures, new_failures = (sum(run.status == "failed" for run in result.runs) for result in (old, new))
        self.is_measured = old.status == new.status == "ok"
        self.is_worse = old.status == "ok" and (new.status != "ok" or new_failures > old_failures)
        old_runs = {run.pair: run for run in old.shown_runs if run.pair}
        self.paired_runs = [(old_runs[run.pair], run) for run in new.shown_runs if run.pair in old_runs]

    @property
    def old_seconds(self) -> float:
        return typical_seconds(_comparable_seconds(self.old))

    @property
    def new_seconds(self) -> float:
        return typical_seconds(_comparable_seconds(self.new))

    @cached_property
    def ratio(self) -> Ratio:
        """Return new time / old time; of runs that were measured together, iteration by iteration."""
        if not self.paired_runs:
            return ratio(_comparable_seconds(self.new), _comparable_seconds(self.old))
        old, new = zip(*self.paired_runs, strict=True)
        if self.old.in_flight == self.new.in_flight == 1:
            return ratio_of_pairs([run.seconds for run in new], [run.seconds for run in old])
        return ratio_of_pairs([run.group_seconds for run in new], [run.group_seconds for run in old])


def _comparable_seconds(result: Result) -> RunSeconds:
    """Return the latencies of each run, or its seconds per iteration if several iterations are in flight."""
    return result.seconds_by_run if result.in_flight == 1 else [[seconds] for seconds in result.paced_by_run]


class Identity(msgspec.Struct, frozen=True):
    """Equal for results whose times are compared. The flags are without --inject, so that its effect is visible."""

    workload: Workload
    configuration: Configuration
    traced: bool
    paired: bool


def match_results(
    old: Sequence[Result], new: Sequence[Result], mixed: bool = False
) -> tuple[list[Pair], list[Result], list[Result]]:
    """Return the pairs, what only the old side has, and what only the new side has.

    Results that were measured together are a pair, then those of equal identity.

    Raises:
        RecordError: machines differ (unless `mixed`), or flags; nothing matches; a side has an identity twice.
    """
    environments = [environment for result in [*old, *new] for environment in result.environments]
    machines = [{key: environment.get(key) for key in MACHINE_KEYS} for environment in environments]
    for machine in machines:
        if machine != machines[0] and not mixed:
            raise RecordError(f"the machines differ, {_difference(machines[0], machine)}: measure both on one "
                              "machine, or give --mixed")  # fmt: skip
    pairs = [pair for one in old for other in new if (pair := Pair(one, other)).paired_runs]
    matched = [result for pair in pairs for result in (pair.old, pair.new)]
    only_old = _by_identity([result for result in old if result not in matched], "OLD")
    only_new = _by_identity([result for result in new if result not in matched], "NEW")
    for identity in only_old.keys() & only_new.keys():
        pairs.append(Pair(only_old.pop(identity), only_new.pop(identity)))
    for one in only_old:
        for other in only_new:
            if one.configuration.name == other.configuration.name:
                difference = _difference(msgspec.to_builtins(one), msgspec.to_builtins(other))
                raise RecordError(f"{one.configuration.name}: OLD and NEW are different measurements, {difference}: "
                                  "measure both with the same flags")  # fmt: skip
    if not pairs:
        names = ["; ".join(result.label for result in side) or "none" for side in (old, new)]
        raise RecordError(f"no configuration is on both sides: OLD has {names[0]}, NEW {names[1]}")
    return sorted(pairs, key=lambda pair: old.index(pair.old)), list(only_old.values()), list(only_new.values())


def _by_identity(results: Sequence[Result], side: str) -> dict[Identity, Result]:
    by_identity: dict[Identity, Result] = {}
    for result in results:
        flags = {name: value for name, value in result.configuration.flags.items() if name != "inject"}
        configuration = msgspec.structs.replace(result.configuration, flags=flags)
        identity = Identity(result.workload, configuration, result.traced, result.paired)
        if identity in by_identity:
            raise RecordError(f"{side} has {by_identity[identity].label} and {result.label}, two results of the same "
                              "measurement: name one of them")  # fmt: skip
        by_identity[identity] = result
    return by_identity


def _difference(one: Any, other: Any, name: str = "") -> str:
    """Return the first part in which two values differ, as text."""
    if isinstance(one, dict) and isinstance(other, dict):
        key = next(key for key in {**one, **other} if one.get(key) != other.get(key))
        return _difference(one.get(key), other.get(key), f"{name} {key}".strip())
    return f"{name} {one} and {other}"
