"""Test that the hash of a sample depends on all its bytes, and not on the padding of micro-batches."""

import torch

from dataflow.endpoints.payload import Outbox
from dataflow.flows.catalogue import build_flow
from dataflow.studies.chatlearn.models import digest, split_samples


def make_samples(flow="ppo", sender="reward"):
    sizes = {"batch_size": 6, "prompt_len": "uniform:3:9", "response_len": "uniform:2:7"}
    message = build_flow(flow, sizes, "fields").message(sender)
    return split_samples([Outbox(sender, message, 1, torch.device("cpu")).pool[0]])


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
