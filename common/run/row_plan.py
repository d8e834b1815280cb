"""The plan of a row among others: its own flags, those of its suite, and those of all."""

from collections.abc import Sequence
from pathlib import Path

from common.errors import UsageError, Waived
from common.plan.command_line import parse
from common.plan.kinds import did_you_mean
from common.plan.plan import Plan
from common.record.rows import LADDER
from common.run.settle import settle

USUAL_TRIPS = "--iterations 30"  # of --rows that say nothing else
PlanOrWaived = tuple[Plan, Waived | None]
COUNTS = ("--iterations", "--duration")  # of these the one takes the place of the other


def plan_of(text: str, flags: Sequence[str], trace: Path | None = None, of_suite: bool = False) -> PlanOrWaived:
    """The plan of one row, such as "graph shm --huge-pages", with the flags of all.

    A suite's own flags give way to those of all; what the caller says of one row does not.

    Raises:
        UsageError: there is no such row, or it cannot be so.
    """
    runtime, transport, *own = [*text.split(), "", ""][: max(2, len(text.split()))]
    if f"{runtime} {transport}" not in LADDER:
        raise UsageError(f"there is no row {text}{did_you_mean(text, LADDER)} (--list has them all)")
    for name in ("--trace", "--output"):
        if gives([*own, *flags], [name]):
            raise UsageError(f"{name} is of one row, in its script: leave it out")
    if gives(own, ["--runs"]):
        raise UsageError(f"{text}: --runs is of all rows: give it outside of the quotes")
    first, last = (own, flags) if of_suite else (flags, own)
    if gives(last, COUNTS):
        first = without(first, COUNTS)
    usual = [] if of_suite or gives([*first, *last], (*COUNTS, "--sweep")) else USUAL_TRIPS.split()
    traced = ["--trace", str(trace)] if trace else []
    try:
        return settle(runtime, parse("", runtime, ["--transport", transport, *usual, *first, *last, *traced]))
    except UsageError as error:
        raise UsageError(f"{runtime} {transport}: {error}") from None


def gives(words: Sequence[str], names: Sequence[str]) -> bool:
    return any(word.partition("=")[0] in names for word in words)


def without(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """The same without these flags and what they are set to."""
    left, following = [], False
    for word in words:
        if not following and word.partition("=")[0] not in names:
            left.append(word)
        following = not following and word in names
    return left
