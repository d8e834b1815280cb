"""Rows measured before and after, each beside itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from common.analysis.results import Result
from common.analysis.statistics import MINIMUM_RUNS, Ratio, Runs, ratio, ratio_of_alternated, typical_seconds
from common.errors import RecordError
from common.record.environment import MACHINE_KEYS
from common.record.schema import Run


def _seconds_by_run(result: Result) -> Runs:
    """Of the trips; where several are under way, of whole episodes by their trips, as latencies then hold waiting."""
    if result.in_flight == 1:
        return result.seconds_by_run
    return [[seconds] for seconds in result.paced_by_run]


@dataclass(frozen=True)
class Pair:
    """A row on both sides, ok on both."""

    old: Result
    new: Result

    @cached_property
    def old_seconds(self) -> float:
        return typical_seconds(_seconds_by_run(self.old))

    @cached_property
    def new_seconds(self) -> float:
        return typical_seconds(_seconds_by_run(self.new))

    @cached_property
    def alternated(self) -> list[tuple[Run, Run]]:
        """The runs, old and new, whose trips alternated."""
        old = {run.alternation: run for run in self.old.shown if run.alternation}
        return [(old[run.alternation], run) for run in self.new.shown if run.alternation in old]

    @cached_property
    def ratio(self) -> Ratio:
        """How many times as long the new one takes."""
        if self.alternated:
            one_at_a_time = self.old.in_flight == self.new.in_flight == 1
            old, new = (
                [run.seconds if one_at_a_time else run.episode_seconds for run in side]
                for side in zip(*self.alternated, strict=True)
            )
            return ratio_of_alternated(new, old)
        return ratio(_seconds_by_run(self.new), _seconds_by_run(self.old))


@dataclass(frozen=True)
class Comparison:
    """What two sides have to say of each other.

    broken: rows that are ok in the old side, and not in the new one. unmeasured: others that are not ok on both.
    """

    pairs: list[Pair]
    only_old: list[Result]
    only_new: list[Result]
    broken: list[Result]
    unmeasured: list[Result]

    @property
    def undecided(self) -> list[Pair]:
        """Those with too few runs for a verdict."""
        return [pair for pair in self.pairs if pair.ratio.runs < MINIMUM_RUNS]

    @property
    def geometric_mean(self) -> float:
        """Of the ratios of all pairs; nan where there is none."""
        return float(np.exp(np.mean([np.log(pair.ratio.value) for pair in self.pairs]))) if self.pairs else float("nan")


def compare(old: Sequence[Result], new: Sequence[Result], mixed: bool = False) -> Comparison:
    """Pair the rows of two sides.

    Args:
        mixed: machines may be unlike.

    Raises:
        RecordError: machines are unlike, or what a row measured (flow, sizes, message, device, layout, tracing), or no
            row is on both sides, or a side has one twice.
    """
    if not mixed:
        _refuse_unlike_machines([*old, *new])
    before, after = _by_identity(old, "OLD"), _by_identity(new, "NEW")
    only_old = [result for identity, result in before.items() if identity not in after]
    only_new = [result for identity, result in after.items() if identity not in before]
    for one in only_old:
        for other in only_new:
            if one.rung == other.rung:
                what = _difference(_measured(one), _measured(other))
                raise RecordError(f"{one.rung}: OLD and NEW measured unlike things, {what}: measure both alike")
    both = [(before[identity], after[identity]) for identity in before if identity in after]
    if not both:
        names = ["; ".join(result.name for result in side) or "none" for side in (old, new)]
        raise RecordError(f"no row is on both sides: OLD has {names[0]}, NEW {names[1]}")
    return Comparison(
        [Pair(one, other) for one, other in both if one.status == other.status == "ok"],
        only_old,
        only_new,
        [other for one, other in both if one.status == "ok" != other.status],
        [one for one, _ in both if one.status != "ok"],
    )


def _refuse_unlike_machines(results: Sequence[Result]) -> None:
    machines = [machine for result in results for machine in result.environments]
    for machine in machines:
        one, other = ({key: found.get(key) for key in MACHINE_KEYS} for found in (machines[0], machine))
        if one != other:
            raise RecordError(f"the machines are unlike, {_difference(one, other)}: measure both on one, or --mixed")


def _measured(result: Result) -> dict[str, Any]:
    """What must be the same for times to be compared, the rung apart; where actors were found to run is not asked."""
    row = result.record.row
    return {
        "traced": result.traced, "alternated": result.alternated, "flow": row.flow, "message": row.message,
        "sizes": row.sizes, "device": row.device,
        "layout": msgspec.to_builtins(msgspec.structs.replace(row.layout, nodes={})),
        "edges": {f"{edge.source} -> {edge.reader}": edge.bytes for edge in result.record.edges},
    }  # fmt: skip


def _by_identity(results: Sequence[Result], side: str) -> dict[bytes, Result]:
    found: dict[bytes, Result] = {}
    for result in results:
        identity = msgspec.json.encode([result.rung, _measured(result)], order="sorted")
        if identity in found:
            raise RecordError(f"{side} has {found[identity].name} and {result.name}, which measure the same: name one")
        found[identity] = result
    return found


def _difference(one: Any, other: Any, name: str = "") -> str:
    """The first part in which two values differ, in words."""
    if isinstance(one, dict) and isinstance(other, dict):
        key = next(key for key in {**one, **other} if one.get(key) != other.get(key))
        return _difference(one.get(key), other.get(key), f"{name} {key}".strip())
    return f"{name} {one} and {other}"
