# SPDX-License-Identifier: Apache-2.0
"""Find the steps of a program: the times of its main loop, judged by the lines that call Ray again and again.

The calls of one thread are a sequence of lines. A line that begins each pass of a loop cuts it into parts that contain
the same lines. The shortest such parts that cover most of the time are the steps. Calls with which Ray makes or ends a
compiled graph are left out: they are many for one line of the user, and wait in loops of their own.
"""

import ast
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from raymeter.errors import UserError
from raymeter.profile.cuts import MIN_STEPS, Cut, Key, collapse, cut_at, key_of
from raymeter.profile.events import Call
from raymeter.profile.library_threads import is_users
from raymeter.profile.one_at_a_time import has_one_task_each
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.source_code import (
    comprehensions_around,
    has_own_frame,
    loops_around,
)
from raymeter.profile.starts import Starting
from raymeter.profile.statements import (
    cut_at_statement,
    in_frames,
    join_passes_of_one_statement,
)

# Times the median: a first step that takes longer contains the start of the workers.
SLOW_START = 1.5
MANY_PASSES = 100  # of a loop in each pass of the loop around it
MAX_PASS_SECONDS = 0.01  # of the median one of those
MAX_NAMES = 8  # of lines and of tasks in the text of an error: those with most calls

Thread = tuple[str, int]  # process and thread


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
        lengths = [end - start for start, end in self.times]
        return median(lengths)

    @property
    def is_whole_program(self) -> bool:
        return not self.line

    def of(self, time: float) -> int | None:
        """Return the number of the step to which a time belongs, from 0; None before the first and after the last."""
        number = bisect_right(self.starts, time) - 1
        if number < 0:
            return None
        _, end = self.times[number]
        if time > end:
            return None
        return number


def find_steps(program: Program, name: str | None = None) -> Steps:
    """Return the steps of a program, which is one step if no loop of steps is found.

    `name` is a line such as "train.py:28", whose calls begin the steps, or else a method or task, whose ends end them.
    Raise UserError if no line has this name, and fewer than two tasks of this name have ended.
    """
    if name:
        return find_named_steps(program, name)
    recording = program.recording
    own = [call for call in recording.calls if is_users(call.line) and not call.graph_function]
    threads = group_by_thread(own) or group_by_thread(recording.calls)
    cuts = find_cuts(program, threads)
    if cuts:
        longest = max(cuts, key=covered_seconds)
        return make_steps(longest)
    start = first_work(recording.calls, recording.start)
    return Steps("the program", [(start, recording.end)])


def find_cuts(program: Program, threads: dict[Thread, list[Call]]) -> list[Cut]:
    """Return the cut of the main thread; those of the others if it has none; [] if no thread has one.

    The main thread has none if the loop runs inside of a task or an actor.
    """
    cutter = Cutter(program)
    main = main_thread(program, threads)
    if main is not None:
        cut = cutter.cut(threads[main])
        if cut is not None:
            return [cut]
    cuts = []
    for thread, calls in threads.items():
        cut = cutter.cut(calls) if thread != main else None
        if cut is not None:
            cuts.append(cut)
    return cuts


def covered_seconds(cut: Cut) -> float:
    return cut.covered * span(cut.calls)


def main_thread(program: Program, threads: dict[Thread, list[Call]]) -> Thread | None:
    """Return the driver's thread that has called Ray for the longest time."""
    drivers = {process.process for process in program.recording.drivers}
    longest: Thread | None = None
    for thread, calls in threads.items():
        process, _ = thread
        if process not in drivers:
            continue
        if longest is None or span(calls) > span(threads[longest]):
            longest = thread
    return longest


def group_by_thread(calls: Iterable[Call]) -> dict[Thread, list[Call]]:
    threads: dict[Thread, list[Call]] = defaultdict(list)
    for call in calls:
        if call.line:
            threads[call.process, call.thread].append(call)
    return threads


def first_start(calls: Sequence[Call], default: float = 0.0) -> float:
    """Return the start of the first call that creates no actor, because actors are created before the loop."""
    for call in calls:
        if call.kind != "actor":
            return call.start
    return default


def first_work(calls: Sequence[Call], default: float) -> float:
    """Return the start of the first call that is no creation of an actor, or of one with large arguments."""
    for call in calls:
        if call.kind != "actor" or call.messages:
            return call.start
    return default


def span(calls: Sequence[Call]) -> float:
    first = calls[0]
    last = calls[-1]
    return last.end - first.start


class Cutter:
    """Cut the calls of a thread into steps."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.starting = Starting(program)
        self.submitting: dict[str, set[Key]] = defaultdict(set)  # by the name of a task
        for call in program.submissions.values():
            task = program.tasks.get(call.task)
            name = task.name if task else call.name
            key = key_of(call)
            self.submitting[name].add(key)

    def cut(self, calls: Sequence[Call]) -> Cut | None:
        """Return the finest cut into steps that are alike; None if no line (and no statement) begins such steps.

        calls: at least one, all of one thread, in the order of their starts. A loop that only takes the results of what
        was submitted before it is a part of a step. If each pass is one task of a list, a loop around it is preferred.
        """
        begin = first_start(calls, calls[0].start)
        end = max(call.end for call in calls)
        counts = Counter(key_of(call) for call in collapse(calls))
        best: Cut | None = None
        finest: Cut | None = None
        for key, count in counts.items():
            if count < MIN_STEPS:
                continue
            cut = self.cut_after_start(calls, key, begin, end)
            if not cut.is_regular:
                continue
            if finest is None or cut.is_finer_than(finest):
                finest = cut
            is_better = best is None or cut.is_finer_than(best)
            if is_better and not self.only_collects(cut):
                best = cut
        chosen = best or finest or cut_at_statement(calls, begin, end, self.starting)
        if chosen is None:
            return None
        chosen = join_passes_of_one_statement(chosen)
        if self.is_list_of_tasks(chosen):
            chosen = self.around_loop(chosen) or in_frames(chosen) or chosen
        else:
            chosen = self.around_many_passes(chosen) or chosen
        return chosen

    def cut_after_start(self, calls: Sequence[Call], key: Key, begin: float, end: float) -> Cut:
        """Return the steps that begin with a call of this line.

        What the thread has waited for new workers before them is left out of the time that they should cover.
        """
        first = next(call for call in calls if key_of(call) == key)
        waited = self.starting.waited(calls, first.start)
        return cut_at(calls, key, begin + waited, end)

    def is_list_of_tasks(self, cut: Cut) -> bool:
        """Return whether each pass is one task and its result, and does not need the last one, as far as it is known.

        Such a loop works on a list, and is a part of a step if it stands in another one.
        """
        calls = [call for call in cut.in_steps if key_of(call) in cut.content]
        if not has_one_task_each(calls, len(cut.starts)):
            return False
        lines = [call.line for call in calls if call.event == "get"]
        loops = loops_around(lines[0], self.program.recording.start)
        return not loops or not loops[0].needs_last_pass(lines[0])

    def around_many_passes(self, cut: Cut) -> Cut | None:
        """Return the steps of the loop around that of a cut, if each of them has very many short passes of it.

        Calls of one actor need not be a list of tasks, but so many small ones are a part of what a user calls a step.
        """
        bounds = [*cut.starts, cut.end]
        lengths = [end - start for start, end in pairwise(bounds)]
        if median(lengths) > MAX_PASS_SECONDS:
            return None
        around = self.around_loop(cut)
        if around is None or count_passes(cut) < MANY_PASSES * len(around.starts):
            return None
        return around

    def around_loop(self, cut: Cut) -> Cut | None:
        """Return the steps of the loop around that of a cut, if it calls Ray by itself; else None."""
        loops = loops_around(cut.line, self.program.recording.start)
        if len(loops) < 2:
            return None
        inner, outer, *_ = loops
        in_outer = [call for call in cut.calls if outer.contains(call.line)]
        outside = [call for call in in_outer if not inner.contains(call.line)]
        keys = dict.fromkeys(map(key_of, outside))
        begin = first_start(cut.calls, cut.calls[0].start)
        best: Cut | None = None
        for key in keys:
            found = cut_at(cut.calls, key, begin, cut.end)
            if len(found.starts) < MIN_STEPS or not found.is_regular:
                continue
            if best is None or found.is_finer_than(best):
                best = found
        return best

    def only_collects(self, cut: Cut) -> bool:
        """Return whether most waits of a typical pass are for tasks that are submitted outside of it."""
        inside = self.waits(cut, is_inside=True)
        outside = self.waits(cut, is_inside=False)
        return outside > inside

    def waits(self, cut: Cut, is_inside: bool) -> int:
        """Return how many calls of typical passes wait for tasks that are submitted inside of them, or else outside.

        A call is not counted if it is not known where the task is submitted for which it waits first.
        """
        count = 0
        for call in cut.calls:
            keys = self.submitted_at(call)
            if not keys or key_of(call) not in cut.content:
                continue
            is_submitted_inside = not keys.isdisjoint(cut.content)
            if is_submitted_inside == is_inside:
                count += 1
        return count

    def submitted_at(self, call: Call) -> set[Key]:
        """Return where the task is submitted whose object a call waits for first; nothing if unknown.

        These are the lines of all tasks of its name.
        """
        if not call.objects:
            return set()
        first = call.objects[0]
        task = self.program.tasks.get(first[:TASK_DIGITS])
        if task is None:
            return set()
        return self.submitting.get(task.name, set())


def count_passes(cut: Cut) -> int:
    """Return how many passes a cut has. Those whose call that waits was not recorded are joined with the next one.

    They are counted by the calls that begin them, unless these are rows of calls without a wait for each.
    """
    begun = 0
    waits = 0
    for call in cut.in_steps:
        begun += key_of(call) == cut.key
        waits += call.event == "get" and call.count == 1
    is_row = 2 * waits < begun
    return len(cut.starts) if is_row else begun


def make_steps(cut: Cut) -> Steps:
    """Return the steps of a cut. Slow first steps are left out, as long as MIN_STEPS stay: workers start in them."""
    bounds = [*cut.starts, cut.end]
    times = list(pairwise(bounds))
    lengths = [end - start for start, end in times]
    slow = SLOW_START * median(lengths)
    skipped = 0
    while len(lengths) - skipped > MIN_STEPS and lengths[skipped] > slow:
        skipped += 1
    first = cut.calls[0]
    what = "all calls of one loop at" if cut.is_function else "a pass of the loop at"
    name = f"{what} {cut.line}"
    return Steps(name, times[skipped:], first.process, first.thread, cut.line, skipped)


def find_named_steps(program: Program, name: str) -> Steps:
    """Return the steps that begin with a line or end with a method of this name.

    The line is looked for in one thread after the other, and the first one that has it counts. Raise UserError if none
    has, and fewer than two tasks of this name have ended.
    """
    for thread, calls in group_by_thread(program.recording.calls).items():
        named = [call for call in calls if has_name(call.line, name)]
        if named:
            process, number = thread
            starts, end = named_starts(program, calls, named)
            bounds = [*starts, end]
            times = list(pairwise(bounds))
            title = f"a pass of the loop at {name}"
            return Steps(title, times, process, number, named[0].line)
    return find_steps_between_ends(program, name)


def has_name(line: str, name: str) -> bool:
    """Return whether a line is the one that a user gave, with or without the folders of its file."""
    short = name.removeprefix("./")
    with_folder = f"/{short}"
    return line == short or line.endswith(with_folder)


def named_starts(
    program: Program, calls: Sequence[Call], named: Sequence[Call]
) -> tuple[list[float], float]:
    """Return when the steps of a line begin, and when the last one ends.

    calls: all calls of a thread; named: those of the line, at least one. Each of them begins a step, but those of one
    run of a comprehension begin one together, as far as runs can be told apart.
    """
    first = named[0]
    end = max(call.end for call in calls)
    cut = cut_at(calls, key_of(first), first.start, end)
    own = [call for call in named if key_of(call) == cut.key]
    starts = [call.start for call in own]
    nested = comprehensions_around(first.line, first.event, program.recording.start)
    if nested:
        runs = starts_of_comprehension(own, cut, nested, python_of(program, first))
        if len(runs) > 1:
            starts = runs
    return starts, cut.end


def python_of(program: Program, call: Call) -> str:
    """Return the version of Python that made a call; "" if it is not known."""
    for process in program.recording.processes:
        if process.process == call.process:
            return process.python
    return ""


def starts_of_comprehension(
    calls: Sequence[Call], cut: Cut, nested: Sequence[ast.AST], python: str
) -> list[float]:
    """Return when a comprehension begins that makes these calls.

    nested: the comprehensions around the calls, the outermost first. The frame of the outermost one is that of a run.
    If it has none, as a list comprehension since Python 3.12, or none was recorded, a run begins where the function
    does, or where the calls before belong to another line or kind.
    """
    framed = [node for node in nested if has_own_frame(node, python)]
    if nested[0] in framed:
        firsts: dict[int, float] = {}
        for call in calls:
            firsts.setdefault(frame_of(call, len(framed) - 1), call.start)
        if len(firsts) > 1:
            return list(firsts.values())
    begun = set(cut.starts)
    starts = []
    last = None
    for call in calls:
        frame = frame_of(call, len(framed))
        if frame != last or call.start in begun:
            starts.append(call.start)
        last = frame
    return starts


def frame_of(call: Call, level: int) -> int:
    """Return the number of the frame so many levels around that of a call; 0 if it was not recorded."""
    return call.frames[level] if level < len(call.frames) else 0


def find_steps_between_ends(program: Program, name: str) -> Steps:
    """Return the steps that end with a method or task of this name; raise UserError if fewer than two have ended."""
    tasks = program.tasks.values()
    named = [task for task in tasks if task.name == name]
    ends = [task.finished for task in named if task.finished]
    ends.sort()
    if len(ends) < 2:
        raise UserError(say_unknown(program, name, len(named)))
    times = list(pairwise(ends))
    title = f"until {name} ends"
    return Steps(title, times, line=name)


def say_unknown(program: Program, name: str, runs: int) -> str:
    """Return why nothing of this name cuts the program into steps, and what does.

    runs: how many tasks of this name the recording has.
    """
    counts = Counter(call.line for call in program.recording.calls if is_users(call.line))
    lines = []
    for line, _ in counts.most_common(MAX_NAMES):
        lines.append(short_line(line))
    ended = Counter(task.name for task in program.tasks.values() if task.name and task.finished)
    tasks = []
    for task, count in ended.most_common(MAX_NAMES):
        if count > 1:
            tasks.append(task)
    reason = "no recorded call of Ray begins in this line, and no task has this name"
    if runs:
        reason = f"only {runs} task of this name is recorded, and a step lies between two of them"
    texts = []
    if lines:
        texts.append(f"a line that calls Ray ({', '.join(lines)})")
    if tasks:
        texts.append(f"a task that ends more than once ({', '.join(tasks)})")
    if not texts:
        return f"--step {name}: {reason}. This profile has no other line or task: leave out --step"
    return f"--step {name}: {reason}. Give {' or '.join(texts)}"


def short_line(line: str) -> str:
    """Return the name of a file and the number of a line, without folders."""
    return line.rpartition("/")[2]
