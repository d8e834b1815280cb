"""Split messages into samples, pad samples into micro-batches, and count samples that are lost, repeated or wrong."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import xxhash

from dataflow.endpoints.payload import raw_bytes
from dataflow.endpoints.tensors import Payload, to_array
from dataflow.flows.flow import Edge

Batch = dict[str, Any]  # a sample, or several samples


def split_samples(messages: Sequence[Payload]) -> list[Batch]:
    """Return one dict of views per sample, with the fields of all messages; of equal names, the last message's."""
    merged = {name: value for message in messages for name, value in message.items()}
    count = len(next(iter(merged.values())))
    return [{name: value[index] for name, value in merged.items()} for index in range(count)]


def pad_samples(samples: Sequence[Batch]) -> Batch:
    """Return samples as one dict of fields. Flat tensors are filled with zeros to equal lengths; strings stay lists."""
    batch: Batch = {}
    for name, first in samples[0].items():
        values = [sample[name] for sample in samples]
        if isinstance(first, (str, list)):
            batch[name] = values
        elif first.dim() == 1:
            batch[name] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
        else:
            batch[name] = torch.stack(values)
    return batch


def digest(sample: Batch) -> int:
    """Return a hash of all fields of a sample, without the zeros that padding adds."""
    state = xxhash.xxh3_64()
    for name, value in sorted(sample.items()):
        kind = getattr(value, "dtype", type(value).__name__)
        data = raw_bytes(to_array(value) if isinstance(value, torch.Tensor) else value).tobytes().rstrip(b"\0")
        state.update(f"{name} {kind} {len(data)} ".encode() + data)
    return state.intdigest()


def digests(batches: Iterable[Batch]) -> Counter[int]:
    """Return how often each sample is in these micro-batches, by its hash."""
    return Counter(digest(sample) for batch in batches for sample in split_samples([batch]))


def count_wrong(sent: Counter[int], received: Counter[int]) -> int:
    """Return how many samples were lost, repeated or changed."""
    return max((sent - received).total(), (received - sent).total())


def sample_bytes(edges: Sequence[Edge]) -> int:
    """Return the bytes of one sample of these messages, rounded up."""
    (count,) = edges[0].message.sample_counts
    return math.ceil(sum(edge.bytes for edge in edges) / count)
