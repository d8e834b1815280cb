"""Each flow that a profile writes is one that `run --flow` accepts."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest
from conftest import ROOT

from dataflow.commands import run
from dataflow.flows.catalogue import build_flow
from dataflow.profile.flow import write_flow
from dataflow.profile.messages import Message, Profile, make_profile

PLACES = (
    "Rollout.generate", "Rollout.load", "Trainer.train", "Judge.score", "Judge", "query", "result", "proxy",
    "<lambda>", "_task", "7up", "mü.größe", "日本", "-", "a b", "a-b", "Very" * 60 + ".long",
)  # fmt: skip
DRIVERS = ("driver.main", "driver.fetch", "driver")
DTYPES = (
    "int64",
    "uint8",
    "bool",
    "bfloat16",
    "complex64",
    "object",
    "str",
    "ints",
    "floats",
    "bytes",
)
NAMES = ("", "tokens", "[]", "*", "a.b", "ø", "with 'quotes\" and \\")
CAUSES = ([], ["view"], ["tensors in the pickle", "view"], ["numbers"])
MIB = 2**20


def make_fields(chooser: random.Random) -> list[list]:
    """Return the fields of a message, as the recorder describes it."""
    fields = []
    for _ in range(chooser.choice((0, 1, 1, 2, 4))):
        count = chooser.choice((1, 1, 3, 64))
        shape = chooser.choice(([], [5], [4, 8], [0, 3], [1, 1, 7]))
        items = chooser.choice((1, 5, 32, 4096))
        size = items * chooser.choice((1, 2, 8))
        causes = chooser.choice(CAUSES)
        name, dtype = chooser.choice(NAMES), chooser.choice(DTYPES)
        fields.append([name, dtype, shape, count, items, size, causes])
    return fields


class Program:
    """The lines of a made-up program, whose calls send messages to any number of readers, in any order."""

    def __init__(self, seed: int) -> None:
        self.chooser = random.Random(seed)
        self.lines: list[dict] = []
        self.places = self.chooser.sample(PLACES, self.chooser.randint(1, 4))
        self.kinds = [self.make_kind() for _ in range(self.chooser.randint(1, 5))]
        for step in range(self.chooser.choice((1, 2, 5, 9))):
            for number, kind in enumerate(self.kinds):
                if self.chooser.random() < kind["share"]:
                    self.send(step, number, kind)

    def make_kind(self) -> dict:
        """Return what a message has in each step."""
        chooser = self.chooser
        how = chooser.choice(("result", "put", "by value", "channel"))
        senders = DRIVERS if how == "by value" else (*DRIVERS, *self.places)
        return {
            "how": how,
            "place": chooser.choice(senders),
            "readers": chooser.choices((*DRIVERS, *self.places), k=chooser.choice((0, 1, 1, 2))),
            "copies": chooser.choice((1, 1, 3, 40)),  # a generator has several items per step
            "share": chooser.choice((0.3, 1.0, 1.0)),  # of the steps
            "fields": make_fields(chooser),
            "stored": chooser.choice((MIB, 7, 3 * MIB + 1)),
            "tokens": chooser.choice(((None,), (1, 2, 3))),
        }

    def send(self, step: int, number: int, kind: dict) -> None:
        """Add the lines of a message and of its readers."""
        for copy in range(kind["copies"]):
            identity = f"{step:04x}{number:04x}{copy:04x}"
            shared = {
                "start": step + number / 10 + copy / 1000, "seconds": 0.01, "faults": 1, "stored": kind["stored"],
                "imports": 0, "token": self.chooser.choice(kind["tokens"]), "node": "a", "line": f"a.py:{number}",
            }  # fmt: skip
            self.lines.append(shared | {
                "side": "sent", "how": kind["how"], "place": kind["place"], "id": f"O{identity}",
                "fields": kind["fields"], "bytes": sum(field[5] for field in kind["fields"]), "other": 0.01,
            })  # fmt: skip
            for reader in kind["readers"]:
                self.lines.append(shared | {
                    "side": "received", "how": "argument", "place": reader, "object": identity, "from": "",
                    "task": f"{reader}{step}", "start": shared["start"] + 0.02,
                })  # fmt: skip

    def write(self, folder) -> None:
        """Write the lines as if two processes had sent and received the messages."""
        folder.mkdir()
        for number in (1, 2):
            own = [line for line in self.lines if self.chooser.random() < 0.5 or number == 1]
            header = {
                "process": f"node-{number}", "ray": "2.60.0", "missing": [], "retained": False, "events": len(own),
                "small": 0, "largest_small_bytes": 9,
            }  # fmt: skip
            text = "\n".join(json.dumps(line) for line in [header, *own])
            (folder / f"node-{number}.jsonl").write_text(f"{text}\n")


@pytest.mark.parametrize("first_seed", range(0, 300, 100))
def test_flows_of_made_up_programs_are_accepted_and_planned(tmp_path, capsys, first_seed):
    planned = 0
    for seed in range(first_seed, first_seed + 100):
        program = Program(seed)
        if not program.lines:
            continue
        folder = tmp_path / str(seed)
        program.write(folder)
        profile = make_profile(folder, 1e-6, None)
        path = folder / "flow.toml"
        write_flow(path, profile)
        build_flow(str(path), {})  # raises ValueError if the flow is not accepted
        if seed % 20 == 0:  # planning takes longer
            words = [
                "store refs",
                "graph shm",
                "--flow",
                str(path),
                "--iterations",
                "1",
                "--dry-run",
            ]
            assert run.main(words) == 0, seed
            planned += 1
    assert planned > 0


def make_profile_of(*messages: Message, steps: int = 10) -> Profile:
    return Profile(
        schema=1, step="Trainer.train", steps=steps, step_seconds=1.0, fault_seconds=1e-6, ray="2.60.0",
        retained=False, missing=[], places={}, seconds=10.0, small_messages=0, messages=list(messages),
    )  # fmt: skip


def make_message(route: str, start: float, **values) -> Message:
    place, _, readers = route.partition(" -> ")
    message = Message(
        place=place, line="a.py:1", how="result", fields=[["x", "int64", [8], 1, 8, 64, []]], start=start,
        forwards="", count=10, readers=[name for name in readers.split(", ") if name], route=route, get_line="",
        stored_bytes=64.0, held_bytes=64.0, causes={}, seconds={}, seconds_per_step=0.1, faults_per_step=0.0,
        senders=1,
    )  # fmt: skip
    return replace(message, **values)


def edges_of(tmp_path, profile: Profile) -> list[str]:
    """Return who sends to whom, without the numbers of messages and the 8 bytes of starts and acknowledgements."""
    path = tmp_path / "flow.toml"
    write_flow(path, profile)
    flow = build_flow(str(path), {})
    names = []
    for edge in flow.edges:
        if edge.message.bytes > 8:
            source, reader = (name.partition("-")[0] for name in (edge.source, edge.reader))
            names.append(f"{source} -> {reader}")
    return names


GENERATE = make_message("Rollout.generate -> Judge.score", 0.0)


@pytest.mark.parametrize(("messages", "edges"), [
    # The driver reads a result and drops it, and sends messages of its own before.
    ([make_message("driver.main -> Judge.score", 0.0), make_message("Judge.score -> driver.main", 1.0)],
     ["driver.main -> Judge.score", "Judge.score -> driver"]),
    # It drops a result, and sends only what it passes on.
    ([make_message("Rollout.generate -> driver.main", 0.0),
      make_message("driver.main -> Judge.score", 1.0, forwards="Rollout.generate"),
      make_message("Judge.score -> driver.main", 2.0)],
     ["Rollout.generate -> Judge.score", "Judge.score -> driver"]),
    # Nobody reads the second one.
    ([GENERATE, make_message("Judge.score -> ", 1.0)], ["Rollout.generate -> Judge.score"]),
    # Nobody reads any.
    ([make_message("Judge.score -> ", 1.0)], ["Judge.score -> driver"]),
    # A generator.
    ([replace(GENERATE, count=30)], ["Rollout.generate -> Judge.score"] * 3),
    # Each of them is missing in some steps.
    ([replace(GENERATE, count=4)], ["Rollout.generate -> Judge.score"]),
    ([replace(GENERATE, count=7), replace(GENERATE, count=3, readers=[])], ["Rollout.generate -> Judge.score"]),
    # The driver passes it on. The judge reads it, too.
    ([make_message("Rollout.generate -> Judge.score, driver.main", 0.0),
      make_message("driver.main -> Trainer.train", 1.0, forwards="Rollout.generate")],
     ["Rollout.generate -> Judge.score", "Rollout.generate -> Trainer.train"]),
    # Both ends are methods of one class, and so two actors.
    ([make_message("Worker.send -> Worker.receive", 0.0)], ["Worker.send -> Worker.receive"]),
    # Its reader sends a message before it gets this one.
    ([make_message("Judge.score -> Trainer.train", 0.0), make_message("Rollout.generate -> Judge.score", 1.0)],
     ["Judge.score -> Trainer.train", "Rollout.generate -> Judge.score"]),
])  # fmt: skip
def test_the_flow_has_the_edges_of_the_program(tmp_path, messages, edges):
    assert sorted(edges_of(tmp_path, make_profile_of(*messages))) == sorted(edges)


PROGRAM = """
import numpy, ray
@ray.remote(num_cpus=0)
class Rollout:
    def generate(self):
        return numpy.ones(50_000)
    def stream(self):
        for _ in range(3):
            yield numpy.ones(40_000)
@ray.remote(num_cpus=0)
class Judge:
    def score(self, batch):
        return batch * 2
    def fetch(self, references):
        return sum(float(ray.get(reference)[0]) for reference in references)
ray.init(num_cpus=1, include_dashboard=False)
rollout, judge = Rollout.remote(), Judge.remote()
for step in range(4):
    weights = numpy.full(60_000, step)
    LOOP
"""
LOOPS = {
    "the driver drops a result": "batch = ray.get(rollout.generate.remote()); ray.get(judge.score.remote(batch))",
    "a generator": "[ray.get(judge.score.remote(item)) for item in "
                   "rollout.stream.options(num_returns='streaming').remote()]",
    "a nested reference": "ray.get(judge.fetch.remote([rollout.generate.remote()]))",
    "nobody reads": "ray.wait([judge.score.remote(weights)])",
}  # fmt: skip


@pytest.mark.runs
@pytest.mark.parametrize("loop", LOOPS)
def test_the_suite_accepts_the_flow_of_a_real_program(tmp_path, loop):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("LOOP", LOOPS[loop]))
    folder = tmp_path / "profile"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "RAY_ADDRESS": "local"}
    words = [sys.executable, "-m", "dataflow", "profile", "--output", folder, program]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    measured = ["store refs", "graph shm", "--flow", str(folder / "flow.toml"), "--dry-run"]
    assert run.main(measured) == 0
