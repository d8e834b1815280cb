# SPDX-License-Identifier: Apache-2.0
"""Cut the calls of a thread into parts that begin with a call of one line, and judge whether they are alike."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from raymeter.profile.events import Call

MIN_STEPS = 3
MIN_COVERED = 0.4  # of the time of the program, by all steps together
MIN_ALIKE = 0.9  # of the time of all steps, in steps that contain the same lines
SHORTEST_SECONDS = 1e-9

Key = tuple[str, str]  # what is called, and the line
Content = frozenset[Key]


@dataclass
class Cut:
    """A sequence of calls, cut at each call of one line."""

    key: Key
    calls: Sequence[Call]
    starts: list[float]
    end: float  # of the last step
    content: Content  # the lines of most passes
    alike: float  # share of the time in steps that contain the same lines
    covered: float  # share of the time of the program
    is_function: bool = False  # a step is a run of the function that makes its calls

    @property
    def line(self) -> str:
        _, line = self.key
        return line

    @property
    def in_steps(self) -> list[Call]:
        """Return the calls from the first step on."""
        first = self.starts[0]
        return [call for call in self.calls if first <= call.start <= self.end]

    @property
    def is_regular(self) -> bool:
        """Return whether most of the time lies in steps that are alike."""
        return self.alike >= MIN_ALIKE and self.covered >= MIN_COVERED

    def is_finer_than(self, other: "Cut") -> bool:
        """Return whether there are more steps, or as many that begin earlier."""
        steps = len(self.starts)
        other_steps = len(other.starts)
        if steps == other_steps:
            return self.starts[0] < other.starts[0]
        return steps > other_steps


def key_of(call: Call) -> Key:
    return call.event, call.line


def collapse(calls: Sequence[Call]) -> list[Call]:
    """Return the first call of each row of calls from one line, such as a submission to each of four actors.

    If a line runs a function of a library again and again, the first call of each kind in each run is returned: what
    is repeated inside of that function is no pass of the user's loop.
    """
    repeated = lines_with_runs(calls)
    firsts: list[Call] = []
    last: Key | None = None
    known: set[Key] = set()  # in the run of `entry`
    entry = 0
    for call in calls:
        key = key_of(call)
        is_same_run = call.entry == entry
        if not is_same_run or call.line not in repeated:
            known.clear()
        is_known = key in known
        if key != last and not is_known:
            firsts.append(call)
        known.add(key)
        last = key
        entry = call.entry
    return firsts


def lines_with_runs(calls: Sequence[Call]) -> set[str]:
    """Return the lines that run a function of a library at least MIN_STEPS times, as far as runs are known."""
    entries: dict[str, set[int]] = defaultdict(set)
    for call in calls:
        if call.entry:
            entries[call.line].add(call.entry)
    return {line for line, numbers in entries.items() if len(numbers) >= MIN_STEPS}


def split_at(calls: Sequence[Call], key: Key) -> list[list[Call]]:
    """Return the parts of a sequence that begin with a call of this line."""
    parts: list[list[Call]] = []
    for call in collapse(calls):
        if key_of(call) == key:
            parts.append([])
        if parts:
            parts[-1].append(call)
    return parts


def cut_at(calls: Sequence[Call], key: Key, begin: float, end: float) -> Cut:
    """Return the steps that begin with a call of this line, of which there must be one.

    A pass that does more than the others, such as an evaluation, is like them if it contains the same lines, too.
    One that is rare is not typical, however long it takes: Ray may be started again in it.
    """
    parts, last_end = without_what_follows(split_at(calls, key), end)
    typical = typical_content(parts, last_end)
    parts, last_end = without_partial(parts, last_end, typical)
    starts = [part[0].start for part in parts]
    first_start = starts[0]
    total = last_end - first_start
    like_typical = 0.0
    for part, (part_start, part_end) in zip(parts, pairwise([*starts, last_end]), strict=True):
        if content_of(part) >= typical:
            like_typical += part_end - part_start
    alike = like_typical / max(SHORTEST_SECONDS, total)
    covered = total / max(SHORTEST_SECONDS, end - begin)
    return Cut(key, calls, starts, last_end, typical, alike, covered)


def content_of(part: Sequence[Call]) -> Content:
    """Return the lines of a part, each with what is called there."""
    return frozenset(map(key_of, part))


def typical_content(parts: Sequence[list[Call]], end: float) -> Content:
    """Return the content that parts of most seconds have, of those that occur MIN_STEPS times; else of all."""
    seconds: dict[Content, float] = defaultdict(float)
    counts: Counter[Content] = Counter()
    bounds = [*(part[0].start for part in parts), end]
    for part, (part_start, part_end) in zip(parts, pairwise(bounds), strict=True):
        content = content_of(part)
        seconds[content] += part_end - part_start
        counts[content] += 1
    frequent = [content for content, count in counts.items() if count >= MIN_STEPS]
    return max(frequent or seconds, key=seconds.__getitem__)


def without_partial(
    parts: list[list[Call]], end: float, typical: Content
) -> tuple[list[list[Call]], float]:
    """Return the parts, and when the last one ends: without a last part that has only some lines of a typical one.

    It is the rest of the step before it, if a part begins with a call in the middle of the user's loop. So that a
    single unusual end takes nothing away from a short program, MIN_STEPS others must be left.
    """
    *others, last = parts
    is_partial = content_of(last) < typical
    if not is_partial or len(others) < MIN_STEPS:
        return parts, end
    return others, last[0].start


def without_what_follows(parts: list[list[Call]], end: float) -> tuple[list[list[Call]], float]:
    """Return the parts, and when the last one ends: without another loop that follows, if it takes longer.

    So a loop that sets up workers is no loop of steps because the whole rest of the program follows its last pass.
    `parts` are not empty.
    """
    *passes, last = parts
    begin = parts[0][0].start
    last_start = last[0].start
    known: set[Key] = set()
    for part in passes:
        known.update(map(key_of, part))
    first = first_of_others(last, known)
    following = Counter(map(key_of, last[first:]))
    is_short = end - last_start <= last_start - begin
    is_loop = max(following.values(), default=0) >= MIN_STEPS
    if is_short or not is_loop:
        return parts, end
    passes.append(last[:first])
    return passes, last[first].start


def first_of_others(calls: list[Call], known: set[Key]) -> int:
    """Return the position of the first call that is not known; that of the end if all are."""
    for position, call in enumerate(calls):
        if key_of(call) not in known:
            return position
    return len(calls)
