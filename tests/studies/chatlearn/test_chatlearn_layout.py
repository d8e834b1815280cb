# SPDX-License-Identifier: Apache-2.0
"""Test replicas and ranks of ChatLearn's models: the order of the replicas, and who gets and answers a message."""

import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from conftest import reject_options
from in_process import LocalEdge
from local_episodes import episode_flags, make_runner

from dataflow.endpoints.inbox import Views
from dataflow.flows.message import flat_message
from dataflow.plan import validate
from dataflow.plan.plan import PROCESS_BYTES
from dataflow.studies.chatlearn.driver import Driver
from dataflow.studies.chatlearn.layout import ModelLayout
from dataflow.studies.chatlearn.models import ChatLearnActor
from dataflow.studies.chatlearn.replica_inbox import ReplicaInbox

FLOW = ("--flow", "online-dpo", "--message", "fields")


@pytest.fixture
def run(make_plan, monkeypatch, tmp_path):
    return make_runner(make_plan, monkeypatch, tmp_path)


@pytest.fixture
def answers(monkeypatch):
    """What each process of a model answers, as it comes: (process, whether it is a message)."""
    seen = []
    forward_step = ChatLearnActor.forward_step

    def answer_and_note(self, task, *inputs):
        data = forward_step(self, task, *inputs)
        seen.append((task, id(self), data is not None))
        return data

    monkeypatch.setattr(ChatLearnActor, "forward_step", answer_and_note)
    return seen


def test_messages_go_to_replicas_in_turn_across_episodes(run):
    """Three untimed messages come first, so the first timed episode begins with the first replica of three."""
    flags = ("--replicas", "policy=2,reference=3", *episode_flags(4, episodes=2))
    done = run(*FLOW, *flags).expect_ok()
    assert done.episodes == [1, 2, 4, 4]
    assert done.measured["replica_order"] == {
        "policy": [[1, 0, 1, 0], [1, 0, 1, 0]],
        "reference": [[0, 1, 2, 0], [1, 2, 0, 1]],
    }
    received = done.measured["received_messages"]
    of_reference = [received[name] for name in ("reference", "reference.1.0", "reference.2.0")]
    assert of_reference == [3, 3, 2]
    assert received["policy"] == received["policy.1.0"] == 4
    assert received["reward"] == received["driver"] == 8


def test_all_ranks_get_each_message_of_their_replica_and_the_last_one_answers(run, answers):
    flags = ("--replicas", "policy=2", "--ranks", "policy=3", *episode_flags(4, episodes=2))
    done = run(*FLOW, *flags).expect_ok()
    received = done.measured["received_messages"]
    processes = [f"policy.{replica}.{rank}" for replica in (0, 1) for rank in (0, 1, 2)]
    processes[0] = "policy"
    assert {name: received[name] for name in processes} == dict.fromkeys(processes, 4)
    number_of = {id(done.actors[name]): name for name in processes}
    of_policy = {}
    for task, process, is_message in answers:
        if task == "policy":
            of_policy.setdefault(number_of[process], set()).add(is_message)
    expected = {name: {name.endswith(".2")} for name in processes}
    assert of_policy == expected


@pytest.mark.parametrize("process", ["policy", "policy.0.1", "policy.1.0", "policy.1.1"])
def test_a_wrong_byte_in_any_process_of_a_model_fails_the_run(run, monkeypatch, process):
    received = ChatLearnActor.receive

    def receive_and_change(self, inputs, task):
        number = received(self, inputs, task)
        if number >= 4 and self is by_name.get(process):
            self.inboxes[task].held[-1][1][0]["input_ids"][0][-1] += 1
        return number

    by_name = {}
    start = ChatLearnActor.__init__

    def start_and_note(self, plan, name, codec, replica=0, rank=0):
        start(self, plan, name, codec, replica, rank)
        by_name.setdefault(f"{name}.{replica}.{rank}".removesuffix(".0.0"), self)

    monkeypatch.setattr(ChatLearnActor, "receive", receive_and_change)
    monkeypatch.setattr(ChatLearnActor, "__init__", start_and_note)
    flags = ("--replicas", "policy=2", "--ranks", "policy=2", *episode_flags(4, episodes=2))
    done = run(*FLOW, *flags)
    assert done.run.status == "failed"
    assert set(done.run.wrong_bytes_by_field) == {"driver -> policy, input_ids"}


@pytest.mark.parametrize("fault", ["policy:5:flip", "policy:5:stale", "reference:6:flip"])
def test_a_faulty_process_of_a_model_fails_the_run(run, fault):
    flags = ("--replicas", "policy=2,reference=3", "--ranks", "policy=2", *episode_flags(4))
    done = run(*FLOW, *flags, "--inject", fault)
    assert done.run.status == "failed"
    assert done.run.wrong_bytes > 0


def test_a_message_for_another_replica_fails_the_run(run, monkeypatch):
    call_model = Driver.call_model

    def call_with_swapped_replicas(self, task, number):
        if task.name == "policy" and number == 6:
            self.processes["policy"].actors.reverse()
        call_model(self, task, number)

    monkeypatch.setattr(Driver, "call_model", call_with_swapped_replicas)
    done = run(*FLOW, "--replicas", "policy=2", *episode_flags(4))
    assert done.run.status == "failed"
    assert any(name.startswith("driver -> policy") for name in done.run.wrong_bytes_by_field)


def make_inbox(edge, replica, replicas):
    edge.inbox = ReplicaInbox(edge.inbox, ModelLayout(replicas), replica)
    return edge


def test_the_inbox_of_a_replica_verifies_only_its_own_messages():
    edge = make_inbox(LocalEdge(flat_message(64)), 0, 2)
    for number in (1, 3, 5):
        assert edge.send(number) == number
    assert edge.verify(1, 6) == {}
    assert edge.send(7) == 7
    assert edge.send(8) == 9  # which is the next one of this replica
    (wrong_bytes,) = edge.verify(7, 10).values()
    assert wrong_bytes > 32


@pytest.mark.parametrize(
    ("numbers", "wrong_bytes"), [((1, 4), 0), ((1,), 64), ((), 128), ((1, 4, 7), 64)]
)
def test_messages_that_are_missing_or_too_many_are_wrong(numbers, wrong_bytes):
    edge = make_inbox(LocalEdge(flat_message(64), keep=3), 0, 3)
    for number in numbers:
        edge.send(number)
    wrong, views = Counter(), Views()
    edge.inbox.verify(1, 6, {"policy": edge.outbox.digests}, wrong, views)
    assert wrong.total() == wrong_bytes
    assert edge.send(7) == 7  # whatever was wrong before


def test_processes_of_models_and_trainers_that_do_not_fit_are_rejected(
    monkeypatch, make_plan, no_gpu
):
    sizes = "--flow ppo --batch-size 8 --prompt-len 8 --response-len 6 --episode 4 --in-flight 4"
    flags = ("--transport", "ref-queue", *sizes.split())
    trainers = ("--sink", "trainer", "--trainers", "16", "--data-parallel", "16")
    monkeypatch.setattr(validate, "limited_memory", lambda: 2**40)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**40))
    alone = make_plan("store", *flags)
    assert alone.processes == 5  # the driver and four models
    # StreamDataset is one more.
    assert make_plan("store", *flags, *trainers).processes == 5 + 1 + 16 * 16
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=24 * 2**30))
    layout = ",".join(f"{model}=64" for model in alone.task_flow.actors)
    for layouts in (("--replicas", layout), ("--ranks", layout), trainers):
        error = reject_options("store", *flags, *layouts)
        assert re.fullmatch(
            r"ref-queue needs 3\d.* GiB of memory with ppo.*, and 24 GiB are free: start fewer than 2\d\d processes",
            error,
        )


def test_every_process_needs_memory_and_a_share_of_the_gpus(make_plan):
    flags = ("--transport", "ref-queue", "--flow", "ppo", "--in-flight", "2", "--batch-size", "8")
    alone = make_plan("store", *flags)
    several = make_plan("store", *flags, "--replicas", "reward=2", "--ranks", "reward=3")
    flow = alone.task_flow
    inputs = sum(edge.bytes for edge in flow.edges_to("reward"))
    added = several.resident_bytes - alone.resident_bytes
    assert added == 5 * (5 * flow.message("reward").bytes + 3 * inputs)
    assert several.memory_bytes - alone.memory_bytes == added + 5 * PROCESS_BYTES
    assert replace(alone, device="cuda", gpus=4).gpus_per_actor == 1
    assert replace(several, device="cuda", gpus=3).gpus_per_actor == pytest.approx(1 / 3, abs=1e-4)
