# SPDX-License-Identifier: Apache-2.0
"""Read the files that a profiled program has written."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raymeter.errors import UserError
from raymeter.profile import events
from raymeter.profile.events import (
    Batch,
    Call,
    Captured,
    Cluster,
    CountedLine,
    Export,
    Fetch,
    LeftOut,
    Process,
    Received,
    RecorderCost,
    Reference,
    Run,
    Sent,
    Store,
    Task,
)

CALLS = ("call", "get", "wait", "next", "put", "channel")
MEMORY_SECONDS = "RAYMETER_MEMORY_SECONDS"  # with which `raymeter memory` asks for samples
TIMES = ("start", "seconds", "time", "submitted", "running")
OPEN_TIMES = ("submitted", "running")  # of a task that Ray has no such time of: null
FIRST_LINE: dict[str, type | tuple[type, ...]] = {
    "start": (int, float),
    "pid": int,
    "cores": int,
    "settings": dict,
    "missing": list,
}
PLAIN = {  # events without others inside of them: their type, and the list in which they are
    "received": (Received, "received"),
    "fetch": (Fetch, "fetches"),
    "run": (Run, "runs"),
    "batch": (Batch, "batches"),
    "task": (Task, "tasks"),
    "store": (Store, "stores"),
    "reference": (Reference, "references"),
    "cluster": (Cluster, "clusters"),
}


@dataclass
class Recording:
    """All events of a program, each list in the order of time."""

    folder: Path
    processes: list[Process] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    exports: list[Export] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)  # of Ray Data
    tasks: list[Task] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)  # that the program has used
    has_exited: bool = False  # raymeter has seen that no signal has ended the program
    damaged: list[str] = field(
        default_factory=list
    )  # a sentence for each file that is not read, or not all of it

    @property
    def drivers(self) -> list[Process]:
        return [process for process in self.processes if process.role == "driver"]

    @property
    def was_killed(self) -> bool:
        """Return whether a driver has not written its end."""
        costs = [process.recorder for process in self.drivers]
        return any(cost is None or not cost.has_ended for cost in costs)

    @property
    def is_of_memory(self) -> bool:
        """Return whether `raymeter memory` made it: other profiles have few samples of memory, or none."""
        return any(MEMORY_SECONDS in process.settings for process in self.drivers)

    @property
    def start(self) -> float:
        return min(process.start for process in self.processes)

    @property
    def end(self) -> float:
        """Return the time of the last line of any process."""
        end = self.start
        for process in self.processes:
            if process.recorder:
                end = max(end, process.recorder.time)
        return end


def read_recording(folder: Path) -> Recording:
    """Return the events in a folder; raise UserError if it is not there, or if no process has written into it.

    What cannot be read is left out, and named in `damaged`. Without a driver, nothing is known of a program.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    recording = Recording(folder)
    for path in sorted(folder.glob("*.jsonl")):
        add_file(recording, path)
    if recording.damaged and not recording.drivers:
        raise UserError(recording.damaged[0])
    if not recording.processes:
        raise UserError(
            f"{folder} has no profile: no process has written into it. Record a program, or give another folder"
        )
    sort_events(recording)
    return recording


def sort_events(recording: Recording) -> None:
    """Sort each list by time."""
    recording.calls.sort(key=lambda call: call.start)
    recording.sent.sort(key=lambda sent: sent.start)
    recording.received.sort(key=lambda received: received.start)
    recording.exports.sort(key=lambda export: export.start)
    recording.runs.sort(key=lambda run: run.start)
    recording.tasks.sort(key=lambda task: task.submitted or task.running or 0.0)
    recording.stores.sort(key=lambda store: store.time)


def add_file(recording: Recording, path: Path) -> None:
    """Add the events of a file, and say what of it cannot be read.

    An empty file is that of a process that was killed.
    """
    try:
        lines = read_lines(path)
    except OSError as error:
        recording.damaged.append(f"{path}: {error.strerror}. It is left out")
        return
    if not lines:
        return
    if not is_process(lines[0]):
        recording.damaged.append(
            f"{path}: it is damaged, or raymeter has not written it. It is left out"
        )
        return
    count = add_process(recording, lines)
    if count:
        recording.damaged.append(
            f"{path}: {count:,} of {len(lines):,} lines are damaged and left out"
        )


def is_process(line: Any) -> bool:
    """Return whether a line is the first one of a file that raymeter has written, with values of the right types."""
    if not isinstance(line, dict) or line.get("event") != "process":
        return False
    has_types = all(isinstance(line[name], FIRST_LINE[name]) for name in FIRST_LINE if name in line)
    return isinstance(line.get("process"), str) and has_types


def read_lines(path: Path) -> list[Any]:
    """Return the values of a file with JSON in each line; None for a damaged one. Raise OSError if it cannot be read.

    A process that was killed may leave a part of a line at the end, which is left out. Parsed as one JSON array, the
    lines take two thirds of the time, and share the names of fields.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    complete, _, _ = text.rpartition("\n")
    separated = complete.replace("\n", ",")
    try:
        return list(json.loads(f"[{separated}]"))
    except ValueError:
        return [parse_line(line) for line in complete.split("\n")]


def parse_line(line: str) -> Any:
    """Return the value of a line; None if it is damaged."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def add_process(recording: Recording, lines: list[Any]) -> int:
    """Add the events of one process. Return how many lines are damaged, and left out; the first one must not be."""
    process = events.make(Process, lines[0])
    recording.processes.append(process)
    damaged = 0
    for line in lines[1:]:
        try:
            check_times(line)
            line["process"] = process.process
            add_event(recording, process, line)
        except (AttributeError, KeyError, TypeError, ValueError):
            damaged += 1
    return damaged


def check_times(line: dict[str, Any]) -> None:
    """Raise TypeError if a time by which events are sorted is no number. Only tasks have times that are not known."""
    for name in TIMES:
        at = line.get(name, 0.0)
        is_open = at is None and name in OPEN_TIMES
        if not is_open and not isinstance(at, (int, float)):
            raise TypeError(name)


def add_event(recording: Recording, process: Process, line: dict[str, Any]) -> None:
    """Add the event of a line to the list of its kind; the last one of the recorder itself goes to its process.

    An unknown kind is left out, and missing fields have their defaults. Raise AttributeError, KeyError, TypeError or
    ValueError if the line is damaged.
    """
    name = line["event"]
    if name in CALLS:
        recording.calls.append(events.make(Call, line))
        return
    del line["event"]
    if name == "sent":
        recording.sent.append(make_sent(line))
    elif name == "export":
        recording.exports.append(make_export(line))
    elif name == "recorder":
        process.recorder = make_recorder_cost(line)
    elif name in PLAIN:
        kind, attribute = PLAIN[name]
        getattr(recording, attribute).append(events.make(kind, line))


def make_export(line: dict[str, Any]) -> Export:
    export = events.make(Export, line)
    export.captured = [events.make(Captured, item) for item in export.captured]
    return export


def make_recorder_cost(line: dict[str, Any]) -> RecorderCost:
    cost = events.make(RecorderCost, line)
    cost.counted = [events.make(CountedLine, item) for item in cost.counted]
    cost.last_left_out = [events.make(LeftOut, item) for item in cost.last_left_out]
    return cost


def make_sent(line: dict[str, Any]) -> Sent:
    """Return a message that was sent, with its fields and alternatives as typed values.

    An alternative that does not fit the message ({}) is named in `unfit`; one that was given up (null) is left out.
    Raise AttributeError, KeyError, TypeError or ValueError if the line is damaged.
    """
    sent = events.make(Sent, line)
    sent.fields = [events.make(events.Field, item) for item in sent.fields]
    if line.get("own_pickling"):
        own = dict(line["own_pickling"])
        own["type"] = own.pop("class")
        sent.own_pickling = events.make(events.OwnPickling, own)
    if line.get("class_code"):
        sent.class_code = events.make(events.ClassCode, line["class_code"])
    measured = sent.alternatives.items()
    sent.unfit = [name for name, item in measured if item == {}]
    sent.alternatives = {
        name: events.make(events.Alternative, item) for name, item in measured if item
    }
    return sent
