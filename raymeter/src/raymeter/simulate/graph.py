# SPDX-License-Identifier: Apache-2.0
"""Build the graph of a program: points in time, and what had to happen before each of them.

Points are the starts and ends of calls of Ray and of the phases of tasks. An edge says that a point comes at least
`seconds` after another one. Edges are:

* work in a thread, from one call to the next, and inside of a call that waits for nothing;
* the end of a call that submits a task, before the start of the task;
* objects that are ready, before the task that needs them, and before the end of the `ray.get` that waits for them;
  an item of a generator is ready when it was sent, and not at the end of its task;
* what was written last into a channel of a compiled graph, before the end of the call that reads it;
* the end of a task, before the next task of its actor or of its worker. If that one was waiting already, the time
  between them is what Ray takes to begin a task. If it was not, and another worker was free, it only comes after the
  task whose end makes a worker free;
* the start of a method that wakes a coroutine of its actor, before the end of that coroutine;
* the end of storing a result in an event loop, before the next task that was waiting: the loop runs nothing else
  meanwhile.

What a recording does not explain, such as the time until a worker is free, is the `delay` of a point. A replay can
keep these delays, or leave them out to see how much of a step the graph explains.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from raymeter.memory.stores import find_spilling
from raymeter.profile.events import Call, Task
from raymeter.profile.program import TASK_DIGITS, Program
from raymeter.profile.starts import NORMAL, find_starts
from raymeter.simulate.free_workers import Ran, find_freeing, most_at_once
from raymeter.simulate.items import Item, items_of
from raymeter.simulate.nesting import outermost
from raymeter.simulate.wakes import find_wakes

Lane = tuple[str, int, str]  # process, thread and task

WAITING = ("get", "wait", "next")
MAX_OVERLAPS = 256  # edges of one process that run at the same time
MAX_DISPATCH_SECONDS = 0.01  # between two tasks, the second of which was waiting
MIN_STORE_SECONDS = 0.001  # of a result, which keeps an event loop from other tasks
CLOCK_SECONDS = 0.0005  # by which the clocks of two events may differ


@dataclass(slots=True)
class Edge:
    """A point comes at least `seconds` after `source`. Work can be shortened, and belongs to a process and thread."""

    source: int
    seconds: float
    process: str = ""
    thread: int = 0
    start: float = 0.0
    end: float = 0.0
    part: str = (
        ""  # "call", "execute", "deserialise", "store", "fetch", "dispatch", "start"; "" is no work
    )


@dataclass(slots=True)
class Point:
    """A point in time of the recording, and what comes before it."""

    time: float
    edges: list[Edge] = field(default_factory=list)
    delay: float = 0.0


@dataclass
class Graph:
    """All points of a program, in the order in which they are added."""

    points: list[Point] = field(default_factory=list)
    call_starts: dict[tuple[str, int], int] = field(default_factory=dict)  # by process and number
    call_ends: dict[tuple[str, int], int] = field(default_factory=dict)
    ready: dict[str, int] = field(default_factory=dict)  # object, or task for all of its results
    starts: dict[str, int] = field(default_factory=dict)  # of tasks
    argument_waits: list[Edge] = field(default_factory=list)  # of tasks with large arguments
    is_complete: bool = True  # Ray's own events of the tasks are there
    hosts: dict[str, str] = field(default_factory=dict)  # by process
    cores: dict[str, int] = field(default_factory=dict)  # by host
    sorted_points: list[int] = field(default_factory=list)

    def add(self, time: float) -> int:
        self.points.append(Point(time))
        return len(self.points) - 1

    def connect(self, source: int | None, target: int, seconds: float = 0.0, **work: Any) -> None:
        """Add an edge, unless the source is None, or the recording shows that the target came before it."""
        if source is None:
            return
        point = self.points[target]
        latest = point.time + 2 * CLOCK_SECONDS
        if self.time_of(source) > latest:
            return
        edge = Edge(source, max(0.0, seconds), **work)
        point.edges.append(edge)

    def time_of(self, point: int) -> float:
        """Return the recorded time of a point."""
        return self.points[point].time

    def order(self) -> list[int]:
        """Return the points in the order of their recorded times."""
        if len(self.sorted_points) != len(self.points):
            numbers = range(len(self.points))
            self.sorted_points = sorted(numbers, key=self.time_of)
        return self.sorted_points

    def start_of(self, call: Call) -> int:
        return self.call_starts[call.process, call.number]

    def end_of(self, call: Call) -> int:
        return self.call_ends[call.process, call.number]

    def ready_point(self, reference: str) -> int | None:
        """Return the point at which an object is ready; None if nothing of it was recorded."""
        if reference in self.ready:
            return self.ready[reference]
        task = reference[:TASK_DIGITS]
        return self.ready.get(task)


def build(program: Program) -> Graph:
    """Return the graph of a program. It is built once, so who changes it undoes that."""
    if program.graph is not None:
        return program.graph
    builder = Builder(program)
    builder.add_machines()
    builder.add_points()
    builder.connect_threads()
    builder.connect_tasks()
    builder.connect_waits()
    builder.set_delays()
    builder.name_starts()
    spilling = find_spilling(program.recording.stores)
    if spilling.restored:
        builder.name_argument_waits()
    program.graph = builder.graph
    return builder.graph


@dataclass
class TaskPoints:
    """The points of a task: its arguments are read, it runs, its results are stored."""

    start: int
    executing: int
    executed: int
    finished: int


class Builder:
    """Add the points of a program to a graph, and connect them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.graph = Graph(is_complete=bool(program.tasks))
        self.task_points: dict[str, TaskPoints] = {}
        self.fetches = {fetch.by: fetch for fetch in program.recording.fetches}
        self.writes: dict[str, list[int]] = defaultdict(list)  # into each channel, in their order
        self.wakes: dict[str, str] = {}  # coroutine -> task that woke it
        self.freeing: dict[str, str] = {}  # normal task -> one that has to end before it

    def add_machines(self) -> None:
        for process in self.program.recording.processes:
            self.graph.hosts[process.process] = process.host
            self.graph.cores[process.host] = process.cores

    def add_points(self) -> None:
        """Add the starts and ends of all calls, and the points of all tasks that have run, except those of the driver.

        An object that was put is ready at the end of its call.
        """
        graph = self.graph
        for call in self.program.recording.calls:
            key = call.process, call.number
            start = graph.add(call.start)
            end = graph.add(call.end)
            graph.call_starts[key] = start
            graph.call_ends[key] = end
            if call.event == "put":
                graph.ready[call.object] = end
            elif call.event == "channel":
                self.writes[call.object].append(end)
        for task in self.program.tasks.values():
            is_driver = task.type == "DRIVER_TASK"
            if not is_driver and task.execute is not None:
                self.add_task(task, task.execute)

    def add_task(self, task: Task, execute: tuple[float, float]) -> None:
        """Add the points of a task. A phase that Ray does not know takes no time, at the start or end of `execute`."""
        graph = self.graph
        start, end = execute
        begin, _ = task.deserialise or execute
        _, stored = task.store or execute
        points = TaskPoints(
            start=graph.add(begin),
            executing=graph.add(start),
            executed=graph.add(end),
            finished=graph.add(max(stored, end)),
        )
        self.task_points[task.task] = points
        graph.starts[task.task] = points.start
        graph.ready[task.task] = points.finished

    def connect_threads(self) -> None:
        """Connect the calls and items of each task (and of the driver) in each thread, with the work between them."""
        calls = self.calls_by_lane()
        items = self.items_by_lane()
        for lane in {**calls, **items}:
            outer = outermost(calls.get(lane, []))
            given = items.get(lane, [])
            steps = merge(outer, given)
            self.connect_lane(lane, steps)

    def calls_by_lane(self) -> dict[Lane, list[Call]]:
        """Return the calls of each task (and of the driver) in each thread."""
        calls: dict[Lane, list[Call]] = defaultdict(list)
        for call in self.program.recording.calls:
            lane = call.process, call.thread, call.by
            calls[lane].append(call)
        return calls

    def items_by_lane(self) -> dict[Lane, list[Item]]:
        """Return the items of each task that is a generator, if Ray knows when it ran."""
        items: dict[Lane, list[Item]] = {}
        for run in self.program.recording.runs:
            if run.kind == "generator" and run.by in self.task_points:
                lane = run.process, run.thread, run.by
                items[lane] = items_of(run)
        return items

    def connect_lane(self, lane: Lane, events: list[Call | Item]) -> None:
        """Connect the calls and items of one task in one thread, from its start to its end.

        The driver has no start and no end here, nor has a task of which Ray does not know when it ran.
        """
        process, thread, task = lane
        points = self.task_points.get(task)
        last = points.executing if points else None
        for event in events:
            if isinstance(event, Item):
                last = self.connect_item(event, last, process, thread)
            else:
                last = self.connect_call(event, last)
        if points:
            self.add_work(last, points.executed, "execute", process, thread)

    def connect_call(self, call: Call, last: int | None) -> int:
        """Connect the code before a call with the call; return the point at which the call ends."""
        start = self.graph.start_of(call)
        end = self.graph.end_of(call)
        self.add_work(last, start, "execute", call.process, call.thread)
        if call.event not in WAITING:
            self.add_work(start, end, "call", call.process, call.thread)
        return end

    def connect_item(self, item: Item, last: int | None, process: str, thread: int) -> int:
        """Connect the code of a generator with the item that it gives; return the point at which Ray has sent it."""
        given = self.graph.add(item.start)
        sent = self.graph.add(item.end)
        self.add_work(last, given, "execute", process, thread)
        self.add_work(given, sent, "store", process, thread)
        self.graph.ready[item.object] = sent
        return sent

    def add_work(
        self, source: int | None, target: int, part: str, process: str, thread: int
    ) -> None:
        """Connect two points with the work that was recorded between them."""
        if source is None:
            return
        start = self.graph.time_of(source)
        end = self.graph.time_of(target)
        work = {"process": process, "thread": thread, "start": start, "end": end, "part": part}
        self.graph.connect(source, target, end - start, **work)

    def connect_tasks(self) -> None:
        """Connect each task with the call that submitted it, its arguments, and the task before it in its worker."""
        by_worker: dict[str, list[str]] = defaultdict(list)  # by actor or process
        self.find_wakes()
        self.find_freeing()
        for name, points in self.task_points.items():
            task = self.program.tasks[name]
            process = self.program.process_of(task)
            self.connect_phases(task, points, process)
            call = self.program.submissions.get(name)
            if call is not None:
                self.connect_submission(call, name, points)
                for reference in call.references:
                    self.connect_object(reference, points)
            worker = task.actor or f"{task.node} {task.pid}"
            by_worker[worker].append(name)
        loops = self.find_event_loops()
        for worker, names in by_worker.items():
            self.connect_worker(names)
            if worker in loops:
                self.connect_event_loop(names)

    def find_wakes(self) -> None:
        """Find which coroutines went on because another method of their actor had begun."""
        begins = {name: self.execution_of(name) for name in self.task_points}
        self.wakes = find_wakes(self.program, begins)

    def find_freeing(self) -> None:
        """Find after which tasks the normal ones begin, if any worker can run them."""
        tasks = [self.program.tasks[name] for name in self.task_points]
        normal = [task for task in tasks if task.type == NORMAL]
        at_once = most_at_once(self.program, normal)
        if not at_once:
            return
        ran = []
        for task in normal:
            name = task.task
            ready = task.waits_for_node or task.submitted or 0.0
            ran.append(Ran(name, str(task.pid), self.begin_of(name), self.finish_of(name), ready))
        self.freeing = find_freeing(ran, at_once)

    def execution_of(self, task: str) -> float:
        """Return the time at which the user's function of a task begins."""
        points = self.task_points[task]
        return self.graph.time_of(points.executing)

    def find_event_loops(self) -> set[str]:
        """Return the actors that have coroutines among their methods."""
        runs = self.program.recording.runs
        tasks = self.program.tasks
        names = {run.by for run in runs if run.has_event_loop}
        return {tasks[name].actor for name in names if name in tasks}

    def connect_event_loop(self, names: list[str]) -> None:
        """Connect the storing of a result with the task that was waiting for the loop until it ended."""
        storing = [name for name in names if self.store_seconds(name) >= MIN_STORE_SECONDS]
        storing.sort(key=self.finish_of)
        finishes = [self.finish_of(name) for name in storing]
        for later in names:
            begun = self.begin_of(later)
            position = bisect_right(finishes, begun) - 1
            if position < 0:
                continue
            earlier = storing[position]
            work = self.dispatch_of(earlier, later)
            if not work:
                continue
            finished = self.task_points[earlier].finished
            start = self.task_points[later].start
            self.graph.connect(finished, start, **work)

    def store_seconds(self, task: str) -> float:
        """Return how long the results of a task were stored."""
        points = self.task_points[task]
        start = self.graph.time_of(points.executed)
        end = self.graph.time_of(points.finished)
        return end - start

    def connect_submission(self, call: Call, task: str, points: TaskPoints) -> None:
        """A task begins after the call that submits it, or during it, because the call ends a little later."""
        start = self.graph.start_of(call)
        end = self.graph.end_of(call)
        begun = self.graph.time_of(points.start)
        if begun < self.graph.time_of(end):
            self.add_work(start, points.start, "call", call.process, call.thread)
        else:
            self.graph.connect(end, points.start, **self.fetch_of(task))

    def fetch_of(self, task: str) -> dict[str, Any]:
        """Return the work of a worker that gets the code of a task before it begins; {} if it has it already."""
        fetch = self.fetches.get(task)
        if fetch is None:
            return {}
        end = fetch.start + fetch.seconds
        return {
            "seconds": fetch.seconds,
            "process": fetch.process,
            "start": fetch.start,
            "end": end,
            "part": "fetch",
        }

    def connect_phases(self, task: Task, points: TaskPoints, process: str) -> None:
        """Connect the phases of a task. Those of a task without calls of its own are connected here, too."""
        self.add_work(points.start, points.executing, "deserialise", process, 0)
        executed = self.graph.points[points.executed]
        if not executed.edges:
            self.connect_execution(task, points, process)
        self.add_work(points.executed, points.finished, "store", process, 0)

    def connect_execution(self, task: Task, points: TaskPoints, process: str) -> None:
        """Connect the start of the user's function with its end."""
        if task.task in self.wakes:
            self.connect_wake(task.task, points)
        else:
            self.add_work(points.executing, points.executed, "execute", process, 0)

    def connect_wake(self, task: str, points: TaskPoints) -> None:
        """A coroutine goes on after the method that wakes it has begun, and not before it has begun itself."""
        waker = self.wakes[task]
        begun = self.task_points[waker].executing
        wake = self.graph.time_of(begun)
        end = self.graph.time_of(points.executed)
        self.graph.connect(points.executing, points.executed)
        self.graph.connect(begun, points.executed, end - wake)

    def connect_object(self, reference: str, points: TaskPoints) -> None:
        """A task begins after its argument is ready, or waits for it while it reads its arguments."""
        ready = self.graph.ready_point(reference)
        self.graph.connect(ready, points.start)

    def connect_worker(self, names: list[str]) -> None:
        """An actor or a worker runs as many tasks at the same time as the recording shows, the next one after that."""
        names = sorted(names, key=self.begin_of)
        slots = self.most_at_once(names)
        after = names[slots:]
        for earlier, later in zip(names, after, strict=False):
            freeing = self.freeing.get(later, earlier)
            finished = self.task_points[freeing].finished
            start = self.task_points[later].start
            work = self.fetch_of(later)
            if not work:
                work = self.dispatch_of(earlier, later)
            self.graph.connect(finished, start, **work)

    def begin_of(self, task: str) -> float:
        """Return the time at which a task begins to read its arguments."""
        points = self.task_points[task]
        return self.graph.time_of(points.start)

    def finish_of(self, task: str) -> float:
        """Return the time at which the results of a task are stored."""
        points = self.task_points[task]
        return self.graph.time_of(points.finished)

    def most_at_once(self, names: list[str]) -> int:
        """Return how many of these tasks ran at the same time."""
        changes: list[tuple[float, int]] = []
        for name in names:
            begun = self.begin_of(name) + CLOCK_SECONDS
            finished = self.finish_of(name)
            changes.append((begun, 1))
            changes.append((finished, -1))
        changes.sort()
        running = accumulate(change for _, change in changes)
        return max(1, *running)

    def dispatch_of(self, earlier: str, later: str) -> dict[str, Any]:
        """Return with what work Ray began a task that was waiting for its worker when another task had finished.

        {}: it was not waiting then, or it took so long that it waited for something else.
        """
        task = self.program.tasks[later]
        waits_since = task.waits_for_node or task.submitted  # then, its arguments are there
        begin = self.finish_of(earlier)
        end = self.begin_of(later)
        seconds = end - begin
        if not waits_since or waits_since > begin:
            return {}
        if seconds > MAX_DISPATCH_SECONDS:
            return {}
        return {
            "seconds": seconds,
            "process": self.program.process_of(task),
            "start": begin,
            "end": end,
            "part": "dispatch",
        }

    def connect_waits(self) -> None:
        """Connect the end of each wait with its start and with what it waits for."""
        for call in self.program.recording.calls:
            if call.event in WAITING:
                self.connect_wait(call)

    def ready_point(self, reference: str, call: Call) -> int | None:
        """Return the point at which an object was ready for a call: of a channel, the end of its last write."""
        written = self.writes.get(reference)
        if written is None:
            return self.graph.ready_point(reference)
        count = bisect_right(written, call.end, key=self.graph.time_of)
        if not count:
            return None
        last = count - 1
        return written[last]

    def awaited_points(self, call: Call) -> list[int]:
        """Return the points at which the objects were ready for which a call waited, as far as they are known.

        ray.wait waits for the first objects only: for as many as it returned, or for one if its time was over. Objects
        that were ready after the end of the call are left out.
        """
        points: list[int] = []
        for reference in call.objects:
            point = self.ready_point(reference, call)
            if point is None:
                continue
            if self.graph.time_of(point) <= call.end:
                points.append(point)
        if call.event == "wait":
            points.sort(key=self.graph.time_of)
            ready_count = max(1, call.ready)
            points = points[:ready_count]
        return points

    def connect_wait(self, call: Call) -> None:
        """After the objects are ready, what is left of the call is work: fetching and reading them.

        If it is not known when any of them was ready, only the reading of large messages is work.
        """
        graph = self.graph
        start = graph.start_of(call)
        end = graph.end_of(call)
        points = self.awaited_points(call)
        times = [graph.time_of(point) for point in points]
        work_start = max([call.start, *times])
        work = {
            "process": call.process,
            "thread": call.thread,
            "start": work_start,
            "end": call.end,
        }
        seconds = call.end - work_start if points else call.deserialise_seconds
        for point in [start, *points]:
            graph.connect(point, end, seconds, part="deserialise", **work)

    def set_delays(self) -> None:
        """Set what the edges of each point do not explain."""
        for point in self.graph.points:
            bounds = []
            for edge in point.edges:
                source = self.graph.time_of(edge.source)
                bounds.append(source + edge.seconds)
            if bounds:
                earliest = max(bounds)
                point.delay = max(0.0, point.time - earliest)

    def name_starts(self) -> None:
        """Make work of the delay before a task for which a worker had to start, or an actor had to be created."""
        for name, start in find_starts(self.program).items():
            points = self.task_points.get(name)
            if points is None:
                continue
            point = self.graph.points[points.start]
            seconds = min(point.delay, start.seconds)
            if seconds > 0:
                name_delay(point, start.process, "start", seconds)

    def name_argument_waits(self) -> None:
        """Make work of the delay before a task with large arguments: it may wait until they are read from disk."""
        for name, points in self.task_points.items():
            call = self.program.submissions.get(name)
            if call is None or not has_argument_in_store(call):
                continue
            point = self.graph.points[points.start]
            parts = [edge.part for edge in point.edges]
            is_explained = any(parts)
            if is_explained or not point.delay:
                continue
            task = self.program.tasks[name]
            process = self.program.process_of(task)
            name_delay(point, process, "restore", point.delay)
            first = point.edges[0]  # only points with edges have a delay
            self.graph.argument_waits.append(first)


def has_argument_in_store(call: Call) -> bool:
    """Return whether a task needs an object of the store: a reference, or a large argument."""
    return bool(call.references or call.messages or call.left_out_messages)


def name_delay(point: Point, process: str, part: str, seconds: float) -> None:
    """Make seconds of the delay of a point work of all edges to it: of the "start" of a worker, or to "restore".

    The time in which the code of the task was fetched belongs to this work then.
    """
    fetching = max((edge.seconds for edge in point.edges if edge.part == "fetch"), default=0.0)
    start = point.time - seconds - fetching
    for edge in point.edges:
        edge.seconds += seconds
        edge.process = process
        edge.start = start
        edge.end = point.time
        edge.part = part
    point.delay -= seconds


def merge(calls: list[Call], items: list[Item]) -> list[Call | Item]:
    """Return the calls and items of a thread in the order of time."""
    return sorted([*calls, *items], key=lambda step: step.start)
