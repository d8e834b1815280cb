# SPDX-License-Identifier: Apache-2.0
"""Write what a change did to the messages and the step of a program: a row per message, and one for the step."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from raymeter.commands.repeated_runs import Run, seconds_of
from raymeter.profile.groups import Group
from raymeter.report.columns import align
from raymeter.report.words import name_place, say_count, wrap_words
from raymeter.statistics import Ratio, compare_pairs
from raymeter.units import format_bytes, significant

MIN_SHARE = 0.01  # of a step; messages that take less before and after are left out
HEADER = ("message", "bytes", "per step", "ms/step", "times as fast", "verdict")
ARROW = " -> "


@dataclass(frozen=True)
class Part:
    """The messages from one sender to the same readers in one run."""

    bytes: float = 0.0  # of one message, in the mean
    count: float = 0.0  # per step; 0 for what was put before the steps, and is only read in them
    reads: float = 0.0  # per step
    seconds: float = 0.0  # of work per step


NOTHING = Part()


@dataclass(frozen=True)
class Side:
    """One message in all runs before, or in all runs after a change."""

    parts: Sequence[Part]

    @property
    def bytes(self) -> float:
        return median(part.bytes for part in self.parts)

    @property
    def count(self) -> float:
        return median(part.count for part in self.parts)

    @property
    def reads(self) -> float:
        return median(part.reads for part in self.parts)

    @property
    def seconds(self) -> float:
        return median(part.seconds for part in self.parts)

    @property
    def times(self) -> list[float]:
        return [part.seconds for part in self.parts]

    @property
    def is_in_each_run(self) -> bool:
        return NOTHING not in self.parts

    @property
    def is_in_no_run(self) -> bool:
        return all(part == NOTHING for part in self.parts)


@dataclass(frozen=True)
class Change:
    """One message before and after."""

    name: str
    before: Side
    after: Side

    @property
    def most_seconds(self) -> float:
        return max(self.before.seconds, self.after.seconds)


def render_text(before: Sequence[Run], after: Sequence[Run], width: int = 120) -> str:
    """Return the comparison as a table of a terminal. If it is too wide, each message has a line of its own."""
    rows = [HEADER, *make_rows(before, after)]
    lines = align(rows)
    if max(map(len, lines)) > width:
        lines = align_below(rows)
    explanation = wrap_words(explain_intervals(len(before)), width)
    return "\n".join([*lines, "", *explanation])


def align_below(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return two lines per row: the message, and below it the other cells."""
    names = [row[0] for row in rows]
    numbers = align([row[1:] for row in rows])
    lines = []
    for name, line in zip(names, numbers, strict=True):
        lines.append(name)
        lines.append(f"  {line}")
    return lines


def render_markdown(before: Sequence[Run], after: Sequence[Run]) -> str:
    """Return the comparison as a table for a pull request."""
    lines = [markdown_row(HEADER), "|---|---:|---:|---:|---:|---|"]
    lines += [markdown_row(row) for row in make_rows(before, after)]
    explanation = explain_intervals(len(before))
    return "\n".join([*lines, "", explanation])


def markdown_row(cells: Sequence[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def explain_intervals(runs: int) -> str:
    """Say what the numbers are, and how sure they are."""
    if runs == 1:
        return "Medians of the steps of one run each, so there is no interval, and no verdict."
    return (
        f"Medians of {runs} interleaved runs each. Times as fast: 95 % interval of the {runs} pairs. ms/step is work, "
        "summed over processes, but for the step."
    )


def make_rows(before: Sequence[Run], after: Sequence[Run]) -> list[tuple[str, ...]]:
    """Return a row per message that matters, those with most work first, and the row of the step."""
    smallest = MIN_SHARE * median(seconds_of(before))
    rows = []
    for change in find_changes(before, after):
        if change.most_seconds >= smallest:
            rows.append(make_row(change))
    rows.append(step_row(before, after))
    return rows


def find_changes(before: Sequence[Run], after: Sequence[Run]) -> list[Change]:
    """Return all messages of all runs, those with most work first. A run without a message has NOTHING in its place."""
    parts_before = [find_parts(run) for run in before]
    parts_after = [find_parts(run) for run in after]
    names: set[str] = set()
    for parts in parts_before + parts_after:
        names.update(parts)
    changes = []
    for name in sorted(names):
        side_before = make_side(name, parts_before)
        side_after = make_side(name, parts_after)
        changes.append(Change(name, side_before, side_after))
    changes.sort(key=lambda change: -change.most_seconds)
    return changes


def make_side(name: str, runs: Sequence[dict[str, Part]]) -> Side:
    parts = [run.get(name, NOTHING) for run in runs]
    return Side(parts)


def find_parts(run: Run) -> dict[str, Part]:
    """Return the messages of a run by "sender -> readers".

    A change of the code moves lines and may change how a message is sent, but seldom who sends it to whom.
    """
    groups: dict[str, list[Group]] = {}
    for group in run.profile.groups:
        name = name_message(group)
        of_name = groups.setdefault(name, [])
        of_name.append(group)
    steps = run.profile.steps.count
    return {name: make_part(items, steps) for name, items in groups.items()}


def name_message(group: Group) -> str:
    """Return who sends and who reads a message, with all of its readers."""
    sender = name_place(group.sender)
    readers = [name_place(reader) for reader in group.readers]
    names = ", ".join(readers) or "no recorded reader"
    return f"{sender}{ARROW}{names}"


def make_part(groups: Sequence[Group], steps: int) -> Part:
    """Return what these groups (at least one) are together, per step.

    What was put before the steps has a size, and no count. If all was, the size is the mean of the groups.
    """
    messages = 0.0
    reads = 0.0
    size = 0.0
    seconds = 0.0
    for group in groups:
        messages += group.count
        reads += group.reads
        size += group.count * group.bytes
        seconds += group.seconds()
    mean_bytes = mean(group.bytes for group in groups)
    if messages:
        mean_bytes = size / messages
    return Part(
        bytes=mean_bytes,
        count=messages / steps,
        reads=reads / steps,
        seconds=seconds / steps,
    )


def make_row(change: Change) -> tuple[str, ...]:
    """Return the cells of a message, in the order of HEADER: medians over the runs before, and those after."""
    before = change.before
    after = change.after
    bytes_before = describe_size(before)
    bytes_after = describe_size(after)
    count_before = say_count(before.count, before.reads)
    count_after = say_count(after.count, after.reads)
    size = join(bytes_before, bytes_after)
    count = join(count_before, count_after)
    milliseconds = join_milliseconds(before.seconds, after.seconds)
    times_as_fast, verdict = judge(before, after)
    return change.name, size, count, milliseconds, times_as_fast, verdict


def describe_size(side: Side) -> str:
    return "-" if side.is_in_no_run else format_bytes(side.bytes)


def judge(before: Side, after: Side) -> tuple[str, str]:
    """Return the interval and the verdict about a message; no interval if not all runs have it."""
    if after.is_in_no_run:
        return "", "gone"
    if before.is_in_no_run:
        return "", "new"
    if before.is_in_each_run and after.is_in_each_run:
        return describe_pairs(before.times, after.times)
    return "", "not in each run"


def step_row(before: Sequence[Run], after: Sequence[Run]) -> tuple[str, ...]:
    """Return the cells of the step."""
    count = join(describe_count(before), describe_count(after))
    times_before = seconds_of(before)
    times_after = seconds_of(after)
    milliseconds = join_milliseconds(median(times_before), median(times_after))
    times_as_fast, verdict = describe_pairs(times_before, times_after)
    return "step", "", count, milliseconds, times_as_fast, verdict


def describe_count(runs: Sequence[Run]) -> str:
    steps = median(run.profile.steps.count for run in runs)
    return f"{steps:.0f} steps"


def describe_pairs(before: Sequence[float], after: Sequence[float]) -> tuple[str, str]:
    """Return the interval and the verdict of paired times; "" and "unknown" if one of them is not above 0."""
    if min(*before, *after) <= 0:
        return "", "unknown"
    ratio = compare_pairs(before, after)
    return describe_interval(ratio), ratio.verdict


def describe_interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}"
    return f"{ratio.low:.2f} to {ratio.high:.2f}"


def join(before: str, after: str) -> str:
    """Return "before -> after", or one of them if they are equal."""
    return before if before == after else f"{before}{ARROW}{after}"


def join_milliseconds(seconds_before: float, seconds_after: float) -> str:
    milliseconds_before = significant(1e3 * seconds_before)
    milliseconds_after = significant(1e3 * seconds_after)
    return join(milliseconds_before, milliseconds_after)
