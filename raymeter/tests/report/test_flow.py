# SPDX-License-Identifier: Apache-2.0
"""Each flow that a profile writes is one that the laboratory accepts."""

import sys
from pathlib import Path

import pytest
from made_programs import MIB, Builder, make_loop_profile, make_profile, make_random_profile
from raymeter.profile.events import Field
from raymeter.profile.groups import Group
from raymeter.profile.steps import Steps
from raymeter.report import flow

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def build_flow(monkeypatch):
    """Return the laboratory's reader of flows."""
    if not (ROOT / "dataflow").is_dir():
        pytest.skip("the laboratory is not beside raymeter")
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return pytest.importorskip("dataflow.flows.catalogue").build_flow


@pytest.fixture
def plan_runs(monkeypatch, build_flow, capsys):
    """Return a function that plans runs of a flow as the page of raymeter says, with --dry-run; it returns the text."""
    run = pytest.importorskip("dataflow.commands.run")
    # How much memory this machine has is no matter of the flow.
    monkeypatch.setattr("dataflow.plan.plan.require_memory", lambda *_: 2**33)
    durations = run.read_durations()  # once, because it reads all campaigns
    monkeypatch.setattr(run, "read_durations", lambda: durations)

    def plan(path: Path) -> str:
        assert run.main(["store refs", "graph shm", "--flow", str(path), "--dry-run"]) == 0
        return capsys.readouterr().out

    return plan


def test_runs_of_flows_of_made_up_programs_are_planned(tmp_path, plan_runs):
    planned = 0
    for seed in range(100):
        path = tmp_path / f"{seed}.toml"
        if flow.write(make_random_profile(seed), path):
            text = plan_runs(path)  # raises UsageError if a run is rejected
            assert "skipped" not in text, seed
            planned += 1
    assert planned > 80


@pytest.mark.parametrize("first_seed", range(0, 300, 100))
def test_flows_of_made_up_programs_are_accepted(tmp_path, build_flow, first_seed):
    written = 0
    for seed in range(first_seed, first_seed + 100):
        path = tmp_path / f"{seed}.toml"
        profile = make_random_profile(seed)
        has_messages = bool(profile.program.messages)
        assert flow.write(profile, path) == has_messages, seed
        if has_messages:
            build_flow(str(path), {})  # raises ValueError if the flow is not accepted
            written += 1
    assert written > 80


class Sender:
    """Send messages from places to places, in steps of 1 s."""

    def __init__(self, steps: int = 4) -> None:
        self.builder = Builder()
        self.steps = steps
        self.count = 0

    def send(self, sender: str, readers: list[str], share: float = 1.0, **values) -> "Sender":
        """Add a message per step, as the result of a task; of the driver, with ray.put."""
        self.count += 1
        for step in range(round(share * self.steps)):
            start = step + self.count / 100
            identity = f"{step:024x}{self.count:024x}"
            call = None
            if not sender:
                call = self.builder.call("put", start, 0.001, object=f"{identity}o", line="/a.py:1")
            process = self.builder.process_of(sender)
            self.builder.send(
                call, start, 0.001, by=identity, by_name=sender, process=process, **values
            )
            for reader in readers:
                self.builder.receive(
                    start + 0.001, 0.001, reader, owner_task=identity, object=f"{identity}o",
                    leaves=values.get("leaves", []),
                )  # fmt: skip
        return self

    def send_to(
        self, reader: str, event: str, processes: int = 1, calls: int = 1, results: int = 0
    ) -> "Sender":
        """Send a message per step to so many processes, in so many calls of each.

        event: "put" for one object that all of them read, or "call" for an argument of each call. results: as many of
        the processes return a message to the driver.
        """
        self.count += 1
        for step in range(self.steps):
            start = step + self.count / 100
            identity = f"{step:020x}{self.count:020x}"
            if event == "put":
                call = self.builder.call("put", start, 1e-4, object="o" + identity, line="/a.py:3")
                self.builder.send(call, start, 1e-5)
            for number in range(processes * calls):
                task = f"{identity}{number:08x}"
                process = self.builder.process_of(reader, number % processes)
                if event == "call":
                    call = self.builder.call(
                        "call", start, 1e-4, task=task, name=reader, line="/a.py:3"
                    )
                    self.builder.send(call, start, 1e-5)
                self.builder.receive(
                    start + 0.001, 1e-5, reader, by=task, process=process, object="o" + identity
                )
                if number < results:
                    self.builder.send(
                        None, start + 0.002, 1e-5, by=task, by_name=reader, process=process
                    )
                    self.builder.receive(start + 0.003, 1e-5, "", owner_task=task, object=task)
        return self

    def send_items(self, sender: str, readers: list[str], count: int) -> "Sender":
        """Add a generator per step: one task with so many items, which are objects of this task."""
        self.count += 1
        for step in range(self.steps):
            task = f"{step:024x}{self.count:024x}"
            for item in range(1, count + 1):
                start = step + self.count / 100 + item / 1000
                process = self.builder.process_of(sender)
                self.builder.send(None, start, 0.0005, by=task, by_name=sender, process=process)
                for reader in readers:
                    self.builder.receive(
                        start, 0.0005, reader, owner_task=task, object=f"{task}{item:08x}"
                    )
        return self

    def send_references(self, reader: str, bytes_of_list: int) -> "Sender":
        """Add a call of the driver per step with a list of references inside of its argument."""
        self.count += 1
        for step in range(self.steps):
            start = step + self.count / 100
            task = f"{step:024x}{self.count:024x}"
            call = self.builder.call(
                "call", start, 0.001, task=task, name=reader, contained=2, line="/a.py:2"
            )
            self.builder.send(call, start, 0.0005, references=2, bytes=bytes_of_list, fields=[])
            self.builder.receive(start, 0.0005, reader, by=task, bytes=bytes_of_list)
        return self

    def profile(self):
        times = [(float(step), step + 1.0) for step in range(self.steps)]
        return make_profile(self.builder.program(), Steps("made", times, line="made.py:1"))


LEAF = [[4096, MIB]]


@pytest.mark.parametrize(("sender", "edges"), [
    pytest.param(
        Sender().send("", ["Judge.score"]).send("Judge.score", [""]),
        ["driver -> Judge.score", "Judge.score -> driver"],
        id="the driver reads a result and drops it",
    ),
    pytest.param(
        Sender().send("Rollout.generate", [""], leaves=LEAF).send("", ["Trainer.train"], leaves=LEAF),
        ["Rollout.generate -> Trainer.train"],
        id="the driver passes it on",
    ),
    pytest.param(
        Sender().send("Rollout.generate", ["", "Judge.score"], leaves=LEAF).send("", ["Trainer.train"], leaves=LEAF),
        ["Rollout.generate -> Judge.score", "Rollout.generate -> Trainer.train"],
        id="the driver passes on what another one reads, too",
    ),
    pytest.param(
        Sender().send("Rollout.generate", ["Judge.score"]).send("Judge.score", []),
        ["Rollout.generate -> Judge.score"],
        id="nobody reads the second one",
    ),
    pytest.param(
        Sender().send("Judge.score", []), ["Judge.score -> driver"], id="nobody reads any",
    ),
    pytest.param(
        Sender().send("Rollout.generate", ["Judge.score"]).send("", ["Judge.score"], share=0.25),
        ["Rollout.generate -> Judge.score"],
        id="one is in few steps",
    ),
    pytest.param(
        Sender().send_items("Rollout.stream", ["Trainer.train"], count=3),
        ["Rollout.stream -> Trainer.train"] * 3,
        id="a generator has several items per step",
    ),
    pytest.param(
        Sender().send_items("Rollout.stream", [""], count=2).send("", ["Trainer.train"]),
        ["Rollout.stream -> driver"] * 2 + ["driver -> Trainer.train"],
        id="the driver reads the items of a generator",
    ),
    pytest.param(
        Sender().send("Rollout.generate", ["Trainer.train"]).send_references("Trainer.train", MIB // 2),
        ["Rollout.generate -> Trainer.train", "driver -> Trainer.train"],
        id="references are inside of a message, whose reader gets them",
    ),
    pytest.param(
        Sender().send_items("Rollout.stream", ["Trainer.train"], count=2).send_references("Trainer.train", 7),
        ["Rollout.stream -> Trainer.train"] * 2,
        id="references to the items of a generator are inside of a small message",
    ),
    pytest.param(
        Sender().send("Worker.send", ["Worker.receive"]), ["Worker.send -> Worker.receive"],
        id="both ends are methods of one class",
    ),
])  # fmt: skip
def test_the_flow_has_the_edges_of_the_program(tmp_path, build_flow, plan_runs, sender, edges):
    path = tmp_path / "flow.toml"
    assert flow.write(sender.profile(), path)
    assert "skipped" not in plan_runs(path)
    found = []
    for edge in build_flow(str(path), {}).edges:
        if edge.bytes > 8:  # smaller ones are starts and acknowledgements
            source, reader = (name.partition("-")[0] for name in (edge.source, edge.reader))
            found.append(f"{source} -> {reader}")
    assert sorted(found) == sorted(edges)


@pytest.mark.parametrize("place", ["Rollout.load", "work"])  # a method, and a task without an actor
@pytest.mark.parametrize("event", ["call", "put"])
@pytest.mark.parametrize(("processes", "calls"), [(1, 1), (1, 2), (2, 1), (3, 2), (5, 1), (5, 2)])
def test_each_reader_gets_as_many_bytes_per_step_as_in_the_table(
    tmp_path, build_flow, place, event, processes, calls
):
    sender = Sender().send_to(place, event, processes, calls, results=processes)
    profile = sender.profile()
    readings = 0
    for group in profile.groups:
        for message in group.messages:
            readings += len({received.process for received in message.received})
            assert message.received
    path = tmp_path / "flow.toml"
    assert flow.write(profile, path)
    edges = [edge for edge in build_flow(str(path), {}).edges if edge.bytes > 8]
    read = processes if event == "put" else processes * calls  # an object is sent to a process once
    assert readings == sender.steps * (read + processes)
    assert len(edges) == read + processes
    assert sum(edge.bytes for edge in edges) == pytest.approx(MIB * readings / sender.steps)


def test_messages_of_a_line_that_calls_two_methods_go_to_one_of_them_each(tmp_path, build_flow):
    sender = Sender().send_to("Rollout.load", "call").send_to("Trainer.load", "call")
    path = tmp_path / "flow.toml"
    assert flow.write(sender.profile(), path)
    edges = [edge for edge in build_flow(str(path), {}).edges if edge.bytes > 8]
    assert len(edges) == 2
    assert len({edge.source for edge in edges}) == 2


FLOAT = {"dtype": "float32", "bytes": 64}


@pytest.mark.parametrize(("field", "form"), [
    (Field(path="x", shape=[4, 4], **FLOAT), {"shape": (4, 4)}),
    (Field(path="x", shape=[4, 4], storage_bytes=256, **FLOAT), {"shape": (4, 4), "storage": (16, 4)}),
    (Field(path="x", count=4, shape=[4], **FLOAT), {"lengths": (4, 4, 4, 4)}),
    (Field(path="x", count=4, shape=[4], dtype="float32", bytes=64, storage_bytes=256),
     {"lengths": (4, 4, 4, 4), "storage": (4, 4)}),
    (Field(path="x", dtype="int", shape=[8], bytes=64), {"dtype": "ints", "lengths": (8,)}),
    (Field(path="x", dtype="arrow", shape=[3, 2], bytes=64), {"dtype": "uint8", "shape": (64,)}),
])  # fmt: skip
def test_a_field_keeps_its_bytes_in_the_laboratory(tmp_path, build_flow, field, form):
    size = max(field.bytes, field.storage_bytes)
    sender = Sender().send("", ["Judge.score"], fields=[field], bytes=size)
    path = tmp_path / "flow.toml"
    flow.write(sender.profile(), path)
    (message,) = [task.sends for task in build_flow(str(path), {}).tasks if "driver" in task.name]
    written = message.fields[0]
    for name, value in form.items():
        assert getattr(written, name) == value
    assert written.serialised_bytes == size


def test_bytes_that_are_not_described_are_one_more_field(tmp_path, build_flow):
    field = Field(path="x", shape=[16], **FLOAT)
    sender = Sender().send("", ["Judge.score"], fields=[field], bytes=1064)
    path = tmp_path / "flow.toml"
    flow.write(sender.profile(), path)
    (message,) = [task.sends for task in build_flow(str(path), {}).tasks if "driver" in task.name]
    assert message.bytes == 1064


def test_without_messages_nothing_is_written(tmp_path):
    path = tmp_path / "flow.toml"
    assert not flow.write(Sender().profile(), path)
    assert not path.exists()


def test_messages_that_were_left_out_are_in_the_flow():
    profile = make_loop_profile()
    first, *others = profile.program.messages
    first.sent.weight = 10.0 * len(profile.steps.times)
    profile.groups = [Group([first]), Group(others)]
    groups = flow.choose_groups(profile)
    assert len(groups) == 2
    assert flow.count_copies(groups[0], profile.steps.count) == 10
