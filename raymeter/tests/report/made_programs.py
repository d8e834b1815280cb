# SPDX-License-Identifier: Apache-2.0
"""Make programs from events, without Ray: a known one, and others from a seed."""

import json
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path

from raymeter.advice import Profile
from raymeter.findings import Advice, Finding, Prediction
from raymeter.profile.events import Call, Field, Process, Received, RecorderCost, Sent, Task
from raymeter.profile.groups import group_messages, in_steps
from raymeter.profile.program import Program, join
from raymeter.profile.reader import Recording
from raymeter.profile.steps import Steps

MIB = 2**20
STEPS = 6
STEP_SECONDS = 0.1
LINE = "/made/train.py:28"
DRIVER_TASK = "f" * 48
TENSOR = Field(path="x", type="torch.Tensor", dtype="float32", shape=[1024], bytes=4096)
PLACES = (
    "Rollout.generate", "Rollout.load", "Trainer.train", "Judge.score", "Judge", "query", "result", "proxy",
    "<lambda>", "_task", "7up", "mü.größe", "日本", "-", "a b", "a-b", "Very" * 60 + ".long", "_QueueActor.get",
)  # fmt: skip
DTYPES = (
    "int64", "uint8", "bool", "bfloat16", "complex64", "object", "str", "int", "float", "bytes", "arrow", "frame",
    "uint16",
)  # fmt: skip
PATHS = ("", "tokens", "[]", "*", "a.b", "ø", "with 'quotes\" and \\")
SHAPES = ([], [5], [4, 8], [0, 3], [1, 1, 7])


@dataclass
class Builder:
    """Add events to a recording. Each place is a process, but for the driver's "", which is the first one."""

    recording: Recording = field(default_factory=lambda: Recording(Path("made")))
    numbers: int = 0

    def __post_init__(self) -> None:
        self.process_of("", 0)

    def process_of(self, place: str, copy: int = 0) -> str:
        """Return the process in which a place runs, with another one for each copy."""
        class_name = place.partition(".")[0]
        name = f"node-{class_name}-{copy}" if place else "node-1"
        if all(process.process != name for process in self.recording.processes):
            pid = 1 + len(self.recording.processes)
            role = "worker" if place else "driver"
            process = Process(name, pid=pid, role=role, start=0.0, recorder=RecorderCost(time=10.0))
            self.recording.processes.append(process)
        return name

    def pid_of(self, process: str) -> int:
        return next(item.pid for item in self.recording.processes if item.process == process)

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def call(self, event: str, start: float, seconds: float, **values) -> Call:
        """Add a call of the driver."""
        place = values.pop("place", "")
        call = Call(
            event=event, process=self.process_of(place), number=self.next_number(), start=start, seconds=seconds,
            by=values.pop("by", DRIVER_TASK), by_name=place, thread=values.pop("thread", 1), **values,
        )  # fmt: skip
        self.recording.calls.append(call)
        return call

    def send(self, call: Call | None, start: float, seconds: float, **values) -> Sent:
        """Add a message that was sent in a call, or as the result of a task."""
        number = self.next_number()
        if call is not None:
            values = {"process": call.process, "by": call.by, "by_name": call.by_name} | values
            call.messages.append(number)
        sent = Sent(
            number=number, scope=call.number if call else 0, start=start, seconds=seconds, thread=1,
            **{"bytes": MIB, "type": "dict", "fields": [TENSOR]} | values,
        )  # fmt: skip
        self.recording.sent.append(sent)
        return sent

    def receive(self, start: float, seconds: float, place: str, **values) -> None:
        values = {"process": self.process_of(place), "bytes": MIB, "type": "dict"} | values
        self.recording.received.append(
            Received(by_name=place, start=start, seconds=seconds, thread=1, **values)
        )

    def task(self, task: str, place: str, start: float, seconds: float, actor: str = "") -> None:
        """Add a task as Ray records it: a tenth of its time each for its arguments and results."""
        part = seconds / 10
        pid = self.pid_of(self.process_of(place))
        self.recording.tasks.append(Task(
            task=task, name=place, type="ACTOR_TASK", actor=actor, pid=pid, submitted=start, running=start,
            finished=start + seconds, deserialise=(start, start + part),
            execute=(start + part, start + 9 * part), store=(start + 9 * part, start + seconds),
        ))  # fmt: skip

    def program(self) -> Program:
        self.recording.calls.sort(key=lambda call: call.start)
        return join(self.recording)


def make_loop(
    send: float = 0.04, has_tasks: bool = True, names: tuple[str, str] = ("Trainer.train", "dict")
) -> Program:
    """Return a loop of six steps of 100 ms.

    The driver sends 1 MiB, and waits for a task, which begins then, and takes half of the rest of the step.
    """
    name, kind = names
    builder = Builder()
    for step in range(STEPS):
        begin = 1.0 + STEP_SECONDS * step
        task = f"{step:048x}"
        call = builder.call("call", begin, send, kind="method", task=task, name=name, line=LINE)
        builder.send(call, begin + send / 10, send / 2, type=kind)
        builder.receive(begin + send, send / 10, name, by=task, object=f"{DRIVER_TASK}{step:08x}")
        work = (STEP_SECONDS - send) / 2
        if has_tasks:
            builder.task(task, name, begin + send, work, actor="a")
        builder.call("get", begin + send, work + 0.005, objects=[f"{task}01"], line=f"{LINE}9")
    return builder.program()


def make_steps() -> Steps:
    """Return the steps of make_loop."""
    starts = [1.0 + STEP_SECONDS * step for step in range(STEPS)]
    times = [(start, start + STEP_SECONDS) for start in starts]
    return Steps(f"a pass of the loop at {LINE}", times, "node-1", 1, LINE)


def make_profile(
    program: Program, steps: Steps, *findings: Finding, saved: float = 0.02
) -> Profile:
    """Return a profile in which each finding saves as much."""
    groups = group_messages(in_steps(program.messages, steps))
    advice = []
    before = steps.seconds
    for finding in findings:
        advice.append(Advice(finding, Prediction(before, before - saved)))
        before -= saved
    return Profile(program, steps, groups, list(findings), advice)


def make_loop_profile(*findings: Finding, saved: float = 0.02, **values) -> Profile:
    return make_profile(make_loop(**values), make_steps(), *findings, saved=saved)


def write_recording(program: Program, folder: Path) -> None:
    """Write a program as the recorder does: a file for each process."""
    recording = program.recording
    for process in recording.processes:
        lines = [asdict(process) | {"event": "process", "recorder": None}]
        named = {"sent": recording.sent, "received": recording.received}
        lines += [asdict(call) for call in recording.calls if call.process == process.process]
        for name, events in named.items():
            lines += [asdict(e) | {"event": name} for e in events if e.process == process.process]
        if process.role == "driver":
            lines += [asdict(task) | {"event": "task"} for task in recording.tasks]
        lines.append(asdict(process.recorder) | {"event": "recorder"})
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"{process.process}.jsonl").write_text(text)


def make_finding(**values) -> Finding:
    known = {
        "cause": "the same content is sent again",
        "title": "The same 1 MiB are sent again 3 times per step",
        "line": "/made/train.py:28",
        "change": "Call `ref = ray.put(value)` once, and pass `ref`.",
        "seconds": 0.02,
    }
    return Finding(**known | values)


def make_fields(chooser: random.Random) -> list[Field]:
    """Return fields as the recorder describes them."""
    fields = []
    for _ in range(chooser.choice((0, 1, 1, 2, 4))):
        size = chooser.choice((1, 5, 32, 4096)) * chooser.choice((1, 2, 8))
        fields.append(Field(
            path=chooser.choice(PATHS), count=chooser.choice((1, 1, 3, 64)), dtype=chooser.choice(DTYPES),
            shape=chooser.choice(SHAPES), bytes=size, storage_bytes=size * chooser.choice((0, 1, 1, 7)),
        ))  # fmt: skip
    return fields


def make_random_profile(seed: int) -> Profile:
    """Return a program in which any place sends messages in any way to any number of readers, in steps of 1 s."""
    chooser = random.Random(seed)
    builder = Builder()
    places = chooser.sample(PLACES, chooser.randint(1, 4))
    kinds = [make_kind(chooser, places) for _ in range(chooser.randint(1, 5))]
    steps = chooser.choice((1, 2, 5, 9))
    for step in range(steps):
        for number, kind in enumerate(kinds):
            if chooser.random() < kind["share"]:
                add_messages(builder, kind, step, number)
    program = builder.program()
    times = [(float(step), step + 1.0) for step in range(steps)]
    return make_profile(program, Steps("made", times, line="made.py:1"))


def make_kind(chooser: random.Random, places: list[str]) -> dict:
    """Return what a message has in each step."""
    return {
        "event": chooser.choice(("call", "put", "channel", "result")),
        "place": chooser.choice(("", *places)),
        "readers": chooser.choices(("", *places), k=chooser.choice((0, 1, 1, 2))),
        "copies": chooser.choice((1, 1, 3, 40)),
        "share": chooser.choice((0.3, 1.0, 1.0)),
        "fields": make_fields(chooser),
        "bytes": chooser.choice((7, MIB, 3 * MIB + 1)),
        "address": chooser.choice((0, 4096, 4096)),  # equal ones are passed on
    }


def add_messages(builder: Builder, kind: dict, step: int, number: int) -> None:
    """Add the messages of a kind in a step, and their readers."""
    for copy in range(kind["copies"]):
        start = step + number / 10 + copy / 1000
        identity = f"{step:016x}{number:016x}{copy:016x}"
        leaves = [[kind["address"] + 10**9 * number, kind["bytes"]]] if kind["address"] else []
        if kind["address"] == 4096:
            leaves = [[4096, kind["bytes"]]]
        shared = {"bytes": kind["bytes"], "leaves": leaves}
        call = None
        process = builder.process_of(kind["place"], copy % 2)
        if kind["event"] != "result":
            call = builder.call(
                kind["event"], start, 0.002, place=kind["place"], task=identity, object=f"{identity}o",
                line=f"/made/a.py:{number}",
            )  # fmt: skip
        builder.send(
            call, start, 0.001, fields=kind["fields"], by=identity, by_name=kind["place"], process=process, **shared
        )  # fmt: skip
        for reader in kind["readers"]:
            builder.receive(
                start + 0.02, 0.001, reader, by=identity, object=f"{identity}o", owner_task=identity, **shared
            )  # fmt: skip
