# SPDX-License-Identifier: Apache-2.0
"""Cut messages into samples, pad samples into micro-batches, and compare samples by their hashes.

alibaba/ChatLearn at 85ee7dfe: data/data.py, `split_batch` and `batching`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import xxhash

from dataflow.endpoints.payload import raw_bytes
from dataflow.endpoints.tensors import Payload, to_array

Sample = dict[str, Any]  # by field
Batch = dict[str, Any]  # by field; each has a value per sample


def split_samples(messages: Sequence[Payload]) -> list[Sample]:
    """Return one dict of views per sample, with the fields of all messages; of equal names, the last message's."""
    merged: Batch = {}
    for message in messages:
        merged |= message
    count = len(next(iter(merged.values())))
    return [pick_sample(merged, index) for index in range(count)]


def pick_sample(batch: Batch, index: int) -> Sample:
    return {name: values[index] for name, values in batch.items()}


def pad_samples(samples: Sequence[Sample]) -> Batch:
    """Return samples as one dict of fields. Flat tensors are filled with zeros to equal lengths; strings stay lists."""
    batch: Batch = {}
    for name in samples[0]:
        values = [sample[name] for sample in samples]
        batch[name] = join_values(values)
    return batch


def join_values(values: list[Any]) -> Any:
    """Return the values of a field, one per sample, as a tensor, or as the list that they are."""
    first = values[0]
    if not isinstance(first, torch.Tensor):
        return values
    if first.dim() == 1:
        return torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
    return torch.stack(values)


def digest(sample: Sample) -> int:
    """Return a hash of all fields of a sample, without the zeros that padding adds."""
    state = xxhash.xxh3_64()
    for name, value in sorted(sample.items()):
        is_tensor = isinstance(value, torch.Tensor)
        kind = value.dtype if is_tensor else type(value).__name__
        view = raw_bytes(to_array(value) if is_tensor else value)
        data = view.tobytes().rstrip(b"\0")
        header = f"{name} {kind} {len(data)} "
        state.update(header.encode() + data)
    return state.intdigest()


def digests_of(samples: Iterable[Sample]) -> Counter[int]:
    """Return how often each sample is there, by its hash."""
    return Counter(map(digest, samples))


def digests_of_batches(batches: Iterable[Batch]) -> Counter[int]:
    """Return how often each sample is in these micro-batches, by its hash."""
    total: Counter[int] = Counter()
    for batch in batches:
        total += digests_of(split_samples([batch]))
    return total


def count_wrong(sent: Counter[int], received: Counter[int]) -> int:
    """Return how many samples were lost, repeated or changed."""
    lost = sent - received
    unexpected = received - sent
    return max(lost.total(), unexpected.total())
