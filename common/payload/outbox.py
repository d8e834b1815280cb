"""What one task emits: its pool of payloads, and the stamp that makes each trip's differ."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from common.flow.message import Field, Message
from common.payload import pattern
from common.payload.forms import pack, places, unpack
from common.payload.leaves import Payload, assemble, leaves_of, map_tensors

Memory = Callable[[int], torch.Tensor]  # of a slot, the flat buffer that its payload shall lie in


class Outbox:
    """`slots` distinct payloads of a message, made before the clock runs.

    sender: the task; it seeds the payloads.
    packed: what is emitted is one flat buffer, into which the payload is packed inside the clock.
    memory: where the payloads (or, packed, the buffers) lie, if not anywhere.
    """

    def __init__(
        self, sender: str, message: Message, slots: int, device: torch.device, packed: bool, memory: Memory | None
    ) -> None:
        self.message, self.packed = message, packed
        self.digests: list[list[int]] = []
        self.pool: list[Payload] = []  # what is stamped
        self.buffers: list[torch.Tensor] = []  # flat memory, where there is any
        self.places: list[list[Any]] = []
        self.words: list[list[memoryview]] = []  # of each slot where the whole number goes ...
        self.stamps: list[list[tuple[Field, Any]]] = []  # ... and where something else stands for it
        for slot in range(slots):
            made = [pattern.make_field(field, sender, slot) for field in message.fields]
            skips = [pattern.stamp_bytes(field) for field in message.fields]
            self.digests.append([pattern.digest(leaves, skip) for leaves, skip in zip(made, skips, strict=True)])
            fields = zip(message.fields, made, strict=True)
            payload = assemble(message, [_tensors(field, leaves, device) for field, leaves in fields])
            if packed or memory:
                count = message.packed_bytes
                buffer = memory(slot) if memory else torch.ones(count, dtype=torch.uint8, device=device)
                self.buffers.append(buffer)
                self.places.append(places(buffer, message))
                pack(payload, message, self.places[slot])
                if not packed:  # the payload itself lies there
                    payload = unpack(buffer, message)
            self.pool.append(payload)
            areas = [
                (field, _area(leaves_of(payload, field)[0], skip))
                for field, skip in zip(message.fields, skips, strict=True) if skip
            ]  # fmt: skip
            self.words.append([area for field, area in areas if _takes_word(field, area)])
            self.stamps.append([(field, area) for field, area in areas if not _takes_word(field, area)])

    def stamp(self, number: int) -> int:
        """Write the number into this trip's payload; its slot."""
        slot = number % len(self.pool)
        mark = number.to_bytes(pattern.STAMP_BYTES, "little")
        for area in self.words[slot]:
            area[:] = mark
        for field, area in self.stamps[slot]:
            if isinstance(area, torch.Tensor):  # on a GPU
                area.copy_(torch.tensor(list(pattern.stamp(field, number)), dtype=torch.uint8))
            else:
                area[:] = pattern.stamp(field, number)
        return slot

    def payload(self, slot: int) -> Payload:
        """What travels: the payload, or its buffer, packed now."""
        if not self.packed:
            return self.pool[slot]
        pack(self.pool[slot], self.message, self.places[slot])
        return self.buffers[slot].view(torch.int64) if self.message.packed_bytes % 8 == 0 else self.buffers[slot]

    def map_pool(self, function: Callable[[Any], Any]) -> None:
        """Do something with every tensor that is sent: register its memory, say."""
        for payload in self.buffers or self.pool:
            map_tensors(function, payload)


def _tensors(field: Field, leaves: list[Any], device: torch.device) -> list[Any]:
    if not field.storage or field.python:
        return leaves if field.python else [torch.from_numpy(leaf).to(device) for leaf in leaves]
    storage = torch.from_numpy(leaves[0].base).to(device)  # one for all, as the arrays have it
    if field.ragged:
        return [storage[index, :count] for index, count in enumerate(field.lengths)]
    return [storage[tuple(map(slice, field.shape))]]


def _area(tensor: torch.Tensor, count: int) -> Any:
    """The first bytes of a tensor, to be written: a memoryview on a CPU, where torch would take ten times as long."""
    row = tensor[(0,) * (tensor.dim() - 1)].reshape(-1)  # a view: reshaping all of a view that has gaps copies it
    if tensor.is_cpu:
        return row.numpy().view(np.uint8).data[:count]
    return row.view(torch.uint8)[:count]


def _takes_word(field: Field, area: Any) -> bool:
    return isinstance(area, memoryview) and len(area) == pattern.STAMP_BYTES and field.dtype != "bool"
