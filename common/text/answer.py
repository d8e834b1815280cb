"""The answer to "which transport": a sentence, the ranking, and what is not known."""

import textwrap
from collections.abc import Sequence

from common.cost.choice import WITHIN, Checked, Choice, Wanted, reason, ruled_out
from common.cost.cost_model import Estimate
from common.errors import UsageError
from common.record.rows import LADDER, ROWS
from common.text.tables import Column, markdown_table, milliseconds, three_digits
from common.units import format_bytes

TOO_WIDE = 10  # times the value: an interval that reaches farther tells nothing


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    if estimate.high > TOO_WIDE * estimate.value:
        return " (95 %: ten times as much or more, its samples lie too far apart)"
    return f" (95 %: {milliseconds(estimate.low)} to {milliseconds(estimate.high)})"


def _time(choice: Choice) -> str:
    """What was measured, and what is expected."""
    words = [f"{milliseconds(choice.measured.summary.median)} ms measured"] if choice.measured else []
    if choice.predicted:
        outside = f", beyond what was swept in {' and '.join(choice.beyond)}" if choice.beyond else ""
        words.append(f"{milliseconds(choice.predicted.value)} ms expected{_interval(choice.predicted)}{outside}")
    return ", ".join(words)


def sentence(wanted: Wanted, found: Sequence[Choice]) -> str:
    """What comes first.

    Raises:
        UsageError: nothing is known of any row.
    """
    known = [(choice, choice.seconds) for choice in found if choice.seconds]
    if not known:
        raise UsageError("no record tells anything of such rows: run python3 benchmark.py sweeps, or the rows "
                         "themselves (benchmark.py --flow ... --rows ...)")  # fmt: skip
    (best, seconds), *others = known
    near = [f"`{choice.row.name}`" for choice, time in others if time <= WITHIN * seconds]
    ends = "readers end with bytes of their own" if wanted.own_bytes else "readers may hold views"
    flow = f"{wanted.flow.name} ({format_bytes(wanted.flow.bytes_per_trip)} a trip; {ends})"
    also = f" Within 10 % of it: {', '.join(near)}." if near else ""
    return f"Take `{best.row.name}{wanted.suffix}` for {flow}: {_time(best)}.{also}"


def print_ranking(found: Sequence[Choice]) -> None:
    """Each row of which a time is known, its needs, what breaks it, and what a faster one does that it does not."""
    known = [(choice, choice.seconds) for choice in found if choice.seconds]
    for place, (choice, seconds) in enumerate(known):
        slower = f", {three_digits(seconds / known[0][1])} times" if place else ""
        print(f"{place + 1:3}. {choice.row.name}: {_time(choice)}{slower}")
        lines, usual = [], LADDER[f"{choice.row.runtime} {choice.row.transport}"]
        if take := choice.row.take or usual.take:
            like = "" if choice.row.take else f"as {usual.name}: "
            lines = [f"{like}needs {take.needs}; breaks: {take.breaks}"]
        faster = [other.row for other, _ in reversed(known[:place])]
        why = [(row.name, because) for row in faster if (because := reason(choice.row, row))]
        lines += [f"slower than {name}; there: {because}" for name, because in why[:1]]
        if place and not why:
            lines.append("why it is slower is not known: no faster row here stands below it in the ladder")
        for line in lines:
            print(textwrap.fill(line, 110, initial_indent=" " * 5, subsequent_indent=" " * 5))


def print_unknown(wanted: Wanted, found: Sequence[Choice], notes: Sequence[str]) -> None:
    """What this answer does not say."""
    unknown = [choice.row.name for choice in found if not choice.seconds]
    out: dict[str, list[str]] = {}
    for row in ROWS:
        if why := ruled_out(row, wanted):
            out.setdefault(why, []).append(row.name)
    lines = [f"ruled out, {why}: {', '.join(names)}" for why, names in out.items()]
    lines += [f"not known, no record: {', '.join(unknown)}"] * bool(unknown)
    for line in [*lines, *notes]:
        print(textwrap.fill(line, 115, subsequent_indent="    ", break_on_hyphens=False))


# --check: what was foretold beside what was measured.
CHECKED = [
    Column("flow", lambda c: f"{c.flow.title[:44]}, {format_bytes(c.flow.bytes_per_trip)}"),
    Column("reads", lambda c: "all" if c.own_bytes else "some"),
    Column("foretold best", lambda c: c.foretold, words=True),
    Column("measured best", lambda c: c.best, words=True),
    Column("times the best", lambda c: f"{c.times:.3f}"),
    Column("", lambda c: "right" if c.right else "WRONG"),
]


def checked_words(flows: Sequence[Checked]) -> str:
    return f"{sum(c.right for c in flows)} of {len(flows)} right: the best, or within 10 % of it"


def checked_markdown(flows: Sequence[Checked]) -> str:
    """For docs/."""
    return f"{markdown_table(flows, CHECKED)}\n\n{checked_words(flows)}."
