"""Find the steps of a program: the times of its main loop, judged by the lines that call Ray again and again.

The calls of one thread are a sequence of lines. A line that begins each pass of a loop cuts it into parts that contain
the same lines. The shortest such parts that cover most of the time are the steps.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from raymeter.errors import UserError
from raymeter.profile.events import Call
from raymeter.profile.program import Program

MIN_STEPS = 3
MIN_COVERED = 0.4  # of the time of the program, by all steps together
MIN_ALIKE = 0.9  # of the time of all steps, in steps that contain the same lines
SLOW_START = (
    1.5  # times the median: a first step that takes longer contains the start of the workers
)

Key = tuple[str, str]  # what is called, and the line


@dataclass
class Steps:
    """The steps of a program. `times` are start and end of each, without `skipped` ones at the beginning."""

    name: str
    times: list[tuple[float, float]]
    process: str = ""
    thread: int = 0
    line: str = ""
    skipped: int = 0
    starts: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = [start for start, _ in self.times]

    @property
    def count(self) -> int:
        return len(self.times)

    @property
    def seconds(self) -> float:
        """Return the length of the median step."""
        return median(end - start for start, end in self.times)

    @property
    def is_whole_program(self) -> bool:
        return not self.line

    def of(self, time: float) -> int | None:
        """Return the number of the step to which a time belongs, from 0; None before the first and after the last."""
        number = bisect_right(self.starts, time) - 1
        if number < 0 or time > self.times[number][1]:
            return None
        return number


@dataclass
class Cut:
    """A sequence of calls, cut at each call of one line."""

    key: Key
    calls: Sequence[Call]
    starts: list[float]
    alike: float  # share of the time in steps that contain the same lines
    covered: float  # share of the time of the program


def find_steps(program: Program, name: str | None = None) -> Steps:
    """Return the steps of a program, which is one step if no loop calls Ray.

    `name` is a line such as "train.py:28", or a method or task, each call of which ends a step. Raise UserError if
    nothing has this name.
    """
    begin, end = program.recording.start, program.recording.end
    if name:
        return find_named_steps(program, name)
    threads = group_by_thread(program.recording.calls)
    main = main_threads(program)
    cuts = [cut_thread(threads[key]) for key in main]
    found = [cut for cut in cuts if cut is not None]
    if not found:  # the loop runs inside of a task or an actor
        cuts = [cut_thread(calls) for key, calls in threads.items() if key not in main]
        found = [cut for cut in cuts if cut is not None]
    if found:
        return make_steps(max(found, key=lambda cut: cut.covered * span(cut.calls)))
    return Steps("the program", [(first_start(program.recording.calls, begin), end)])


def cut_thread(calls: Sequence[Call]) -> Cut | None:
    return best_cut(calls, first_start(calls, calls[0].start), max(call.end for call in calls))


def main_threads(program: Program) -> list[tuple[str, int]]:
    """Return process and thread of each driver's thread that has called Ray for the longest time."""
    threads = group_by_thread(program.recording.calls)
    drivers = {process.process for process in program.recording.drivers}
    own = [key for key in threads if key[0] in drivers]
    return sorted(own, key=lambda key: span(threads[key]), reverse=True)[:1]


def group_by_thread(calls: Iterable[Call]) -> dict[tuple[str, int], list[Call]]:
    threads: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in calls:
        if call.line:
            threads[call.process, call.thread].append(call)
    return threads


def first_start(calls: Sequence[Call], default: float = 0.0) -> float:
    """Return the start of the first call that creates no actor, because actors are created before the loop."""
    return next((call.start for call in calls if call.kind != "actor"), default)


def span(calls: Sequence[Call]) -> float:
    return calls[-1].end - calls[0].start


def busy_seconds(calls: Sequence[Call]) -> float:
    return sum(call.seconds for call in calls)


def best_cut(calls: Sequence[Call], begin: float, end: float) -> Cut | None:
    """Return the finest cut into steps that are alike, or None."""
    counts = Counter((call.event, call.line) for call in collapse(calls))
    cuts = []
    for key, count in counts.items():
        if count >= MIN_STEPS:
            cut = cut_at(calls, key, begin, end)
            if cut.alike >= MIN_ALIKE and cut.covered >= MIN_COVERED:
                cuts.append(cut)
    if not cuts:
        return None
    most = max(len(cut.starts) for cut in cuts)
    finest = [cut for cut in cuts if len(cut.starts) == most]
    return min(finest, key=lambda cut: cut.starts[0])


def collapse(calls: Sequence[Call]) -> list[Call]:
    """Return the first call of each row of calls from one line, such as a submission to each of four actors."""
    firsts: list[Call] = []
    last: Key | None = None
    for call in calls:
        key = call.event, call.line
        if key != last:
            firsts.append(call)
        last = key
    return firsts


def cut_at(calls: Sequence[Call], key: Key, begin: float, end: float) -> Cut:
    """Return the steps that begin with a call of this line."""
    parts: list[list[Call]] = []
    for call in collapse(calls):
        if (call.event, call.line) == key:
            parts.append([])
        if parts:
            parts[-1].append(call)
    starts = [part[0].start for part in parts]
    ends = [*starts[1:], end]
    contents = [frozenset((call.event, call.line) for call in part) for part in parts]
    seconds: dict[frozenset[Key], float] = defaultdict(float)
    for content, part_start, part_end in zip(contents, starts, ends, strict=True):
        seconds[content] += part_end - part_start
    total = sum(seconds.values())
    most_seconds = max(seconds.values())
    covered = total / max(1e-9, end - begin)
    return Cut(key, calls, starts, most_seconds / max(1e-9, total), covered)


def make_steps(cut: Cut) -> Steps:
    """Return the steps of a cut. A slow first step is left out: it contains the start of workers."""
    first = cut.calls[0]
    ends = [*cut.starts[1:], cut.calls[-1].end]
    times = list(zip(cut.starts, ends, strict=True))
    typical = median(end - start for start, end in times)
    skipped = 0
    while len(times) > MIN_STEPS and times[0][1] - times[0][0] > SLOW_START * typical:
        times.pop(0)
        skipped += 1
    name = f"a pass of the loop at {cut.key[1]}"
    return Steps(name, times, first.process, first.thread, cut.key[1], skipped)


def find_named_steps(program: Program, name: str) -> Steps:
    """Return the steps that begin with a line or end with a method of this name."""
    calls = [call for call in program.recording.calls if call.line.endswith(name)]
    if calls:
        starts = [call.start for call in collapse(calls)]
        last = calls[-1]
        times = list(zip(starts, [*starts[1:], last.end], strict=True))
        return Steps(f"a pass of the loop at {name}", times, last.process, last.thread, last.line)
    ends = sorted(
        task.finished for task in program.tasks.values() if task.name == name and task.finished
    )
    if len(ends) < 2:
        known = sorted({task.name for task in program.tasks.values() if task.name})
        raise UserError(
            f"--step {name}: give a line such as train.py:28, or one of {', '.join(known)}"
        )
    return Steps(f"until {name} ends", list(pairwise(ends)), line=name)
