"""Test that the hash of a sample depends on all its bytes, and not on the padding of micro-batches."""

import pytest
import torch

from dataflow.endpoints.outbox import Outbox
from dataflow.flows.catalogue import build_flow
from dataflow.studies.chatlearn.models import count_wrong, digest, digests, pad_samples, split_samples


def make_samples(flow="ppo", sender="reward"):
    sizes = {"batch_size": 6, "prompt_len": "uniform:3:9", "response_len": "uniform:2:7"}
    message = build_flow(flow, sizes, "fields").message(sender)
    return split_samples([Outbox(sender, message, 1, torch.device("cpu")).pool[0]])


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
