# SPDX-License-Identifier: Apache-2.0
"""Compare results: pairs of configurations, and two measurements."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import msgspec

from dataflow.analysis.result import Result
from dataflow.analysis.statistics import Ratio, ratio
from dataflow.catalogue.catalogue import BASELINE, REFERENCE
from dataflow.errors import RecordError
from dataflow.plan.options import normal_flags
from dataflow.records.machine import HARDWARE_KEYS, MACHINE_KEYS, machine_values
from dataflow.records.schema import Configuration, Workload


@dataclass(frozen=True)
class Identity:
    """What is equal for results whose times are compared. The flags have no --inject, so that its effect is visible."""

    workload: Workload
    configuration: Configuration
    traced: bool
    paired: bool


def find_transports(results: Sequence[Result]) -> list[Result]:
    """Return the ok results that are verified after each iteration, the demo's baseline first.

    The reference is no transport.
    """
    transports = []
    for result in results:
        if result.status != "ok":
            continue
        is_verified_each_time = result.check_every == 1
        is_reference = result.transport.label == REFERENCE
        if is_verified_each_time and not is_reference:
            transports.append(result)
    return sorted(transports, key=lambda result: result.name != BASELINE)


class Pair:
    """Two results whose times per iteration are compared."""

    def __init__(self, old: Result, new: Result) -> None:
        self.old = old
        self.new = new
        self.sides = (old, new)
        self.label = new.label if new.label == old.label else f"{new.label} / {old.label}"
        self.is_measured = old.status == new.status == "ok"
        fails_more_often = failed_share(new) > failed_share(old)
        is_lost = new.status != "ok"
        self.is_worse = old.status == "ok" and (is_lost or fails_more_often)
        by_pair = {run.pair: run for run in old.shown_runs if run.pair}
        self.paired_runs = []
        for run in new.shown_runs:
            if run.pair in by_pair:
                self.paired_runs.append((by_pair[run.pair], run))

    @cached_property
    def ratio(self) -> Ratio:
        """Return new time / old time; of runs that were paired, pair by pair. Disturbed runs have no verdict."""
        old = self.old.run_seconds
        new = self.new.run_seconds
        is_paired = bool(self.paired_runs)
        if is_paired:
            old = [self.old.seconds_of(run) for run, _ in self.paired_runs]
            new = [self.new.seconds_of(run) for _, run in self.paired_runs]
        value = ratio(new, old, paired=is_paired)
        if any(side.is_disturbed for side in self.sides):
            return replace(value, interval=None, is_disturbed=True)
        return value


def failed_share(result: Result) -> float:
    """Return the share of runs that failed."""
    failed = sum(run.status == "failed" for run in result.runs)
    return failed / len(result.runs)


def match_results(
    old: Sequence[Result], new: Sequence[Result]
) -> tuple[list[Pair], list[Result], list[Result]]:
    """Return the pairs, the unmatched old and the unmatched new results; raise RecordError if they do not fit.

    Runs that were paired make a pair, whatever their configurations are. Other results make a pair if their identity
    is equal.
    """
    pairs = []
    matched: list[Result] = []
    for one_result, other_result in product(old, new):
        pair = Pair(one_result, other_result)
        if pair.paired_runs:
            pairs.append(pair)
            matched += pair.sides
    only_old = _by_identity([result for result in old if result not in matched])
    only_new = _by_identity([result for result in new if result not in matched])
    for identity in only_old.keys() & only_new.keys():
        old_result = only_old.pop(identity)
        new_result = only_new.pop(identity)
        pairs.append(Pair(old_result, new_result))
    for one, other in product(only_old, only_new):
        _check_same_measurement(one, other)
    if not pairs:
        of_old = _join_labels(old)
        of_new = _join_labels(new)
        raise RecordError(f"no configuration is on both sides: OLD has {of_old}, NEW {of_new}")
    pairs.sort(key=lambda pair: old.index(pair.old))
    return pairs, [*only_old.values()], [*only_new.values()]


def _join_labels(results: Sequence[Result]) -> str:
    """Return the labels of results; "none" without any."""
    return "; ".join(result.label for result in results) or "none"


def _check_same_measurement(one: Identity, other: Identity) -> None:
    """Raise RecordError for two unmatched results of one configuration: they were measured with other flags."""
    if one.configuration.name != other.configuration.name:
        return
    difference = next(find_differences(msgspec.to_builtins(one), msgspec.to_builtins(other)))
    raise RecordError(
        f"{one.configuration.name}: OLD and NEW are different measurements, {difference}: measure both with the same "
        "flags"
    )


def _by_identity(results: Sequence[Result]) -> dict[Identity, Result]:
    """Return the results by what must be equal; raise RecordError if two of them are equal in it."""
    by_identity: dict[Identity, Result] = {}
    for result in results:
        flags = normal_flags(result.configuration.flags)
        flags.pop("inject", None)
        configuration = msgspec.structs.replace(result.configuration, flags=flags)
        identity = Identity(result.workload, configuration, result.traced, result.paired)
        other = by_identity.setdefault(identity, result)
        if other is not result:
            raise RecordError(
                f"{other.label} and {result.label} are two results of the same measurement on one side: name one of "
                "them"
            )
    return by_identity


def find_differences(one: Any, other: Any, name: str = "") -> Iterator[str]:
    """Yield a text for each value that differs in two nested dicts: its name and both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from find_differences(one.get(key), other.get(key), f"{name} {key}".strip())
    elif one != other:
        yield f"{name}: {one} → {other}"


def check_one_machine(results: Sequence[Result], several_boots: bool = False) -> None:
    """Raise RecordError for results of different machines or versions, or in one table of two boots or kernels.

    With `several_boots`, each table may be of another machine, which it names.
    """
    first: dict[str, dict[str, Any]] = {}
    for result in results:
        table = f"the records of the table {result.table}"
        of_hardware = table if several_boots else "the records"
        groups: dict[str, Sequence[str]] = {
            f"{of_hardware} are of different machines or versions": HARDWARE_KEYS
        }
        if not several_boots:
            groups[f"{table} are of different boots or kernels"] = MACHINE_KEYS
        for environment, (problem, keys) in product(result.environments, groups.items()):
            machine = machine_values(environment, keys)
            expected = first.setdefault(problem, machine)
            difference = next(find_differences(expected, machine), None)
            if difference:
                raise RecordError(f"{problem}, {difference}: name those of one, or give --mixed")
