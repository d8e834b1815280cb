"""Test that micro-batches have every sample once, and that anything else is counted as wrong bytes."""

import pytest
import torch

from dataflow.endpoints.actor import Actor
from dataflow.endpoints.outbox import Outbox
from dataflow.endpoints.progress_table import ProgressTable
from dataflow.flows.catalogue import build_flow
from dataflow.studies.chatlearn.samples import count_wrong, digest, digests, pad_samples, split_samples

SIZES = ("--batch-size", "6", "--prompt-len", "uniform:3:9", "--response-len", "uniform:2:7")
FLAGS = ("--transport", "refs", "--flow", "ppo", "--message", "fields", "--sink", "trainer", "--train-micro-batch", "2")


def make_samples(flow="ppo", sender="reward"):
    sizes = {"batch_size": 6, "prompt_len": "uniform:3:9", "response_len": "uniform:2:7"}
    message = build_flow(flow, sizes, "fields").message(sender)
    return split_samples([Outbox(sender, message, 1, torch.device("cpu")).pool[0]])


@pytest.fixture
def trainer(make_plan, tmp_path):
    """Return the part of the actor that reads the results, after iteration 3, whose micro-batches it holds."""
    plan = make_plan("store", *FLAGS, *SIZES, run_folder=tmp_path)
    ProgressTable.create(tmp_path, plan.worker_names, plan.total_iterations)
    (part,) = Actor(plan, "stream-dataset").parts
    senders = [Actor(plan, name) for name in ("value", "reward")]
    for number in (1, 2, 3):
        assert part.end_group(number) == {}
        messages = [sender.make_payload(number, sender.name) for sender in senders]
        part.endpoint.forward_step("stream-dataset", *messages)
    return part


def test_micro_batches_are_copies_of_all_samples(trainer):
    assert [len(batch["old_values"]) for batch in trainer.micro_batches[3]] == [2, 2, 2]
    for messages in (inputs for inbox in trainer.endpoint.inboxes.values() for _, inputs in inbox.held):
        for message in messages:
            message["loss_mask" if "loss_mask" in message else "old_values"].zero_()
    assert trainer.end_group(3) == {}
    assert trainer.micro_batches == {}


def change(batches):
    batches[1]["old_values"][1, 2] += 1
    return batches


def exchange(batches):
    """Exchange a field of two samples."""
    batches[0]["old_values"] = batches[0]["old_values"].flip(0)
    return batches


def write_into_padding(batches):
    value = batches[0]["action_logprobs"]
    value[int((value[0] != 0).sum() > (value[1] != 0).sum()), -1] = 1
    return batches


def repeat(batches):
    return [*batches, batches[0]]


@pytest.mark.parametrize(
    ("damage", "samples"),
    [(change, 1), (exchange, 2), (write_into_padding, 1), (repeat, 2), (lambda b: b[1:], 2), (lambda b: [], 6),
     (lambda b: [b[0], b[0], b[2]], 2)],
)  # fmt: skip
def test_samples_that_are_lost_repeated_exchanged_or_changed_are_wrong_bytes(trainer, damage, samples):
    trainer.micro_batches[3] = damage(trainer.micro_batches[3])
    flow = trainer.endpoint.task_flow
    bytes_per_sample = sum(edge.bytes for edge in flow.edges_to("stream-dataset")) / 6
    (wrong,) = trainer.end_group(3).items()
    assert wrong[0] == "stream-dataset, micro-batches"
    assert samples * bytes_per_sample <= wrong[1] < samples * (bytes_per_sample + 1)


def test_micro_batches_of_another_iteration_are_wrong(trainer):
    trainer.micro_batches[4] = trainer.micro_batches.pop(3)
    assert trainer.end_group(4)


@pytest.mark.parametrize(("flow", "sender"), [("ppo", "reward"), ("online-dpo", "policy"), ("dpo", "reference")])
def test_padding_does_not_change_the_digest(flow, sender):
    samples = make_samples(flow, sender)
    sent = digests([pad_samples(samples)])
    assert len(sent) == 6 and count_wrong(sent, digests([pad_samples(samples[:4]), pad_samples(samples[4:])])) == 0


def test_a_changed_byte_of_any_field_or_another_dtype_changes_the_digest():
    sample = make_samples()[2]
    for name, value in sample.items():
        if isinstance(value, str):
            changed = value[:-1] + "?"
        elif isinstance(value, list):
            changed = [number + 1 for number in value]
        else:
            changed = value.clone()
            last = changed.reshape(-1)[-1:]
            last.copy_(last.logical_not() if last.dtype == torch.bool else last + 1)
        assert digest(sample | {name: changed}) != digest(sample), name
    assert digest(sample | {"ref_logprobs": sample["ref_logprobs"].view(torch.int32)}) != digest(sample)
