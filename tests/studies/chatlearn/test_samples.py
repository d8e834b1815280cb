"""Test that micro-batches have every sample once, and that anything else is counted as wrong bytes."""

import pytest
import torch

from dataflow.endpoints.actor import Actor
from dataflow.endpoints.outbox import Outbox
from dataflow.endpoints.progress_table import ProgressTable
from dataflow.endpoints.tensors import map_tensors
from dataflow.flows.catalogue import build_flow
from dataflow.studies.chatlearn.trainer import (
    TrainerCollector,
    count_wrong,
    digest,
    digests,
    pad_samples,
    split_samples,
)

SIZES = ("--batch-size", "6", "--prompt-len", "uniform:3:9", "--response-len", "uniform:2:7")
FLAGS = ("--flow", "ppo", "--message", "fields", "--sink", "trainer", "--train-micro-batch", "2")


def make_samples(flow="ppo", sender="reward"):
    sizes = {"batch_size": 6, "prompt_len": "uniform:3:9", "response_len": "uniform:2:7"}
    message = build_flow(flow, sizes, "fields").message(sender)
    return split_samples([Outbox(sender, message, 1, torch.device("cpu")).pool[0]])


@pytest.fixture
def make_trainer(make_plan, tmp_path):
    """make_trainer(*flags) -> the part of the actor that reads the results, after three iterations."""

    def make(*flags, runtime="store", transport="refs"):
        plan = make_plan(runtime, "--transport", transport, *FLAGS, *SIZES, *flags, run_folder=tmp_path)
        (tmp_path / "progress").unlink(missing_ok=True)
        ProgressTable.create(tmp_path, plan.worker_names, plan.total_iterations)
        task = plan.task_flow.tasks[-1]
        (part,) = Actor(plan, task.actor).parts
        senders = [Actor(plan, name) for name in ("value", "reward")]
        for number in (1, 2, 3):
            # Other memory for each message, as after a transport.
            messages = [map_tensors(torch.clone, sender.make_payload(number, sender.name)) for sender in senders]
            part.endpoint.forward_step(task.name, *messages)
        return part

    return make


def test_micro_batches_are_copies_of_all_samples_of_the_messages_in_flight(make_trainer):
    trainer = make_trainer("--in-flight", "2")
    assert [[len(batch["old_values"]) for batch in batches] for _, batches in trainer.held] == [[2, 2, 2], [2, 2, 2]]
    assert trainer.end_group(3) == 0 and not trainer.held
    trainer = make_trainer()
    for _, messages in trainer.endpoint.inboxes["stream-dataset"].held:
        messages[0]["old_values"].zero_()
    assert trainer.end_group(3) > 0  # the micro-batches still have the values that arrived


def test_a_proxy_actor_makes_micro_batches_of_the_results(make_trainer):
    trainer = make_trainer(runtime="rdt", transport="gloo")
    assert (trainer.endpoint.worker.actor, trainer.task) == ("proxy", "result")
    ((_, batches),) = trainer.held
    assert [len(batch["old_values"]) for batch in batches] == [2, 2, 2]
    assert trainer.end_group(3) == 0


def change(batches):
    batches[1]["old_values"][1, 2] += 1
    return batches


def exchange(batches):
    """Exchange a field of two samples."""
    batches[0]["old_values"] = batches[0]["old_values"].flip(0)
    return batches


def write_into_padding(batches):
    values = next(batch["action_logprobs"] for batch in batches if 0 in batch["action_logprobs"][:, -1])
    values[int(values[0, -1] != 0), -1] = 1
    return batches


@pytest.mark.parametrize(
    ("damage", "samples"),
    [
        (change, 1),
        (exchange, 2),
        (write_into_padding, 1),
        (lambda batches: [*batches, batches[0]], 2),
        (lambda batches: batches[1:], 2),
        (lambda batches: [], 6),
        (lambda batches: [batches[0], batches[0], batches[2]], 2),
    ],
    ids=["change", "exchange", "padding", "repeat", "lose", "lose all", "repeat and lose"],
)
def test_samples_that_are_lost_repeated_exchanged_or_changed_are_wrong_bytes(make_trainer, damage, samples):
    trainer = make_trainer()
    messages, batches = trainer.held.pop()
    trainer.held.append((messages, damage(batches)))
    bytes_per_sample = sum(edge.bytes for edge in trainer.endpoint.task_flow.edges_to("stream-dataset")) / 6
    wrong = trainer.end_group(3)
    assert samples * bytes_per_sample <= wrong < samples * (bytes_per_sample + 1)
    assert TrainerCollector(None).add({"policy": 0, "stream-dataset": wrong}, True) == {
        "stream-dataset, micro-batches": wrong
    }


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
