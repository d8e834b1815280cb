"""A message as samples, and the check that a trainer's micro-batches are all of what was sent."""

import pytest
import torch

from common.flow.catalogue import build_flow
from common.payload.model import Model
from common.payload.outbox import Outbox
from common.payload.samples import micro_batches, wrong_bytes
from common.trace.board import Board

SIZES = {"rows": 6, "prompt_len": "uniform:3:9", "response_len": "uniform:1:7"}
FLOW = build_flow("ppo", SIZES, "fields")
EDGES, NUMBER, SLOTS = FLOW.edges_to("driver"), 4, 3


@pytest.fixture
def sent():
    outboxes = {
        edge.source: Outbox(edge.source, edge.message, SLOTS, torch.device("cpu"), False, None) for edge in EDGES
    }
    messages = [outbox.payload(outbox.stamp(NUMBER)) for outbox in outboxes.values()]
    return messages, {sender: outbox.digests for sender, outbox in outboxes.items()}


@pytest.mark.parametrize("rows", [1, 2, 4, 6, 100])
def test_micro_batches_put_together_again_are_what_was_sent(sent, rows):
    messages, digests = sent
    batches = micro_batches(messages, rows)
    assert len(batches) == -(-6 // rows)
    assert wrong_bytes(batches, EDGES, NUMBER, SLOTS, digests) == {}
    assert wrong_bytes(batches, EDGES, NUMBER + 1, SLOTS, digests)  # of another trip


def test_what_is_lost_doubled_out_of_order_or_changed_is_counted_by_field(sent):
    messages, digests = sent
    one, two, three = micro_batches(messages, 2)
    fields = {field.name for edge in EDGES for field in edge.message.fields}
    for batches in ([one, two], [one, two, two, three], [one, two, three, three], []):
        found = wrong_bytes(batches, EDGES, NUMBER, SLOTS, digests)
        assert {name.rpartition(", ")[2] for name in found} == fields
    assert len(wrong_bytes([one, three, two], EDGES, NUMBER, SLOTS, digests)) > len(fields) / 2
    two["old_values"][1, 2] += 1
    found = wrong_bytes([one, two, three], EDGES, NUMBER, SLOTS, digests)
    assert (
        list(found) == [f"{EDGES[0]}, micro-batches, old_values"]
        and 1 <= found[f"{EDGES[0]}, micro-batches, old_values"] <= 4
    )


def test_padding_that_is_not_zero_is_counted(sent):
    messages, digests = sent
    batches = micro_batches(messages, 6)
    edge, field = next((edge, f) for edge in EDGES for f in edge.message.fields if f.ragged and not f.python)
    shortest = min(range(6), key=lambda row: field.lengths[row])
    batches[0][field.name][shortest, -1] = 1
    found = wrong_bytes(batches, EDGES, NUMBER, SLOTS, digests)
    assert list(found) == [f"{edge}, micro-batches, {field.name}"] and 1 <= sum(found.values()) <= 8


def test_they_lie_in_memory_of_the_trainers_own(sent):
    messages, digests = sent
    batches = micro_batches(messages, 4)
    for message in messages:
        for value in message.values():
            for tensor in value if isinstance(value, list) else [value]:
                if isinstance(tensor, torch.Tensor):
                    tensor.zero_()
    assert wrong_bytes(batches, EDGES, NUMBER, SLOTS, digests) == {}


def test_a_trainer_that_loses_a_micro_batch_fails_the_check(make_plan, tmp_path, monkeypatch):
    sizes = ("--rows", "6", "--prompt-len", "uniform:3:9", "--response-len", "4", "--message", "fields")
    plan = make_plan("store", "--transport", "refs", "--flow", "grpo", "--sink", "trainer", *sizes, folder=tmp_path)
    Board.create(tmp_path, plan.participants, plan.trips)
    source, trainer = Model(plan, "reward"), Model(plan, str(plan.sink))
    trainer.learn(source.own_digests())
    trainer.forward_step(str(plan.sink), source.emit(1, "reward"))
    assert trainer.verify(1, 1)[0] == {}
    trainer.forward_step(str(plan.sink), source.emit(2, "reward"))
    trainer.batches[2].pop()
    assert sum(trainer.verify(2, 2)[0].values()) > 0
