"""Test that micro-batches have every sample once, and that anything else is counted as wrong bytes."""

import pytest
import torch

from dataflow.endpoints.actor import Actor
from dataflow.endpoints.outbox import Outbox
from dataflow.endpoints.progress_table import ProgressTable
from dataflow.endpoints.tensors import map_tensors
from dataflow.flows.catalogue import build_flow
from dataflow.studies.chatlearn.samples import make_micro_batches, verify_micro_batches

SIZES = {"batch_size": 6, "prompt_len": "uniform:3:9", "response_len": "uniform:1:7"}
FLOW = build_flow("ppo", SIZES, "fields")
EDGES, NUMBER, SLOTS = FLOW.edges_to("driver"), 4, 3


@pytest.fixture
def sent():
    """Return the messages of both edges, and the digests of their senders."""
    cpu = torch.device("cpu")
    outboxes = {edge.source: Outbox(edge.source, edge.message, SLOTS, cpu, False, None) for edge in EDGES}
    messages = [outbox.payload(outbox.write_number(NUMBER)) for outbox in outboxes.values()]
    return messages, {sender: outbox.digests for sender, outbox in outboxes.items()}


@pytest.mark.parametrize("batch_size", [1, 2, 4, 6, 100])
def test_right_micro_batches_have_no_wrong_bytes(sent, batch_size):
    messages, digests = sent
    batches = make_micro_batches(messages, batch_size)
    assert len(batches) == -(-6 // batch_size)
    assert verify_micro_batches(batches, EDGES, NUMBER, digests) == {}
    assert verify_micro_batches(batches, EDGES, NUMBER + 1, digests)  # of another iteration


def test_samples_that_are_missing_repeated_exchanged_or_changed_are_counted_by_field(sent):
    messages, digests = sent
    one, two, three = make_micro_batches(messages, 2)
    names = {field.name for edge in EDGES for field in edge.message.fields}
    for batches in ([one, two], [one, two, two, three], [one, two, three, three], []):
        wrong = verify_micro_batches(batches, EDGES, NUMBER, digests)
        assert {name.rpartition(", ")[2] for name in wrong} == names
    assert len(verify_micro_batches([one, three, two], EDGES, NUMBER, digests)) > len(names) / 2
    two["old_values"][1, 2] += 1
    wrong = verify_micro_batches([one, two, three], EDGES, NUMBER, digests)
    name = f"{EDGES[0]}, micro-batches, old_values"
    assert list(wrong) == [name] and 1 <= wrong[name] <= 4


def test_padding_that_is_not_zero_is_counted(sent):
    messages, digests = sent
    batches = make_micro_batches(messages, 6)
    edge, field = next((edge, f) for edge in EDGES for f in edge.message.fields if f.is_list and not f.is_python)
    shortest = min(range(6), key=lambda sample: field.lengths[sample])
    batches[0][field.name][shortest, -1] = 1
    wrong = verify_micro_batches(batches, EDGES, NUMBER, digests)
    assert list(wrong) == [f"{edge}, micro-batches, {field.name}"] and 1 <= sum(wrong.values()) <= 8


def test_micro_batches_are_copies(sent):
    messages, digests = sent
    batches = make_micro_batches(messages, 4)
    for message in messages:
        map_tensors(torch.Tensor.zero_, message)
    assert verify_micro_batches(batches, EDGES, NUMBER, digests) == {}


def test_a_trainer_that_loses_a_micro_batch_fails_verification(make_plan, tmp_path):
    sizes = ("--batch-size", "6", "--prompt-len", "uniform:3:9", "--response-len", "4", "--message", "fields")
    plan = make_plan("store", "--transport", "refs", "--flow", "grpo", "--sink", "trainer", *sizes, run_folder=tmp_path)
    table = ProgressTable.create(tmp_path, plan.worker_names, plan.total_iterations)
    source, trainer = Actor(plan, "reward"), Actor(plan, plan.task_flow.tasks[-1].name)
    trainer.learn_digests(source.payload_digests())
    trainer.forward_step(plan.task_flow.tasks[-1].name, source.make_payload(1, "reward"))
    assert trainer.end_group(1) == {"chatlearn": {}}
    trainer.forward_step(plan.task_flow.tasks[-1].name, source.make_payload(2, "reward"))
    trainer.parts[0].micro_batches[2].pop()
    assert sum(trainer.end_group(2)["chatlearn"].values()) > 0
    assert table.numbers()[plan.task_flow.tasks[-1].name] == 2
