"""Hold the payloads that one task sends, and write the sequence numbers into them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dataflow.endpoints.payload import digest, encode_number, make_field, number_bytes
from dataflow.endpoints.tensors import (
    Payload,
    assemble,
    flat_items,
    from_array,
    pack,
    packed_views,
    tensors_of,
    to_array,
    unpack,
)
from dataflow.flows.message import NUMBER_BYTES, Field, Message

Memory = Callable[[int], torch.Tensor]  # slot -> the flat buffer in which its payload, or packed buffer, must lie


class Outbox:
    """Make `slots` different payloads of a message before the timed section.

    Inside the timed section, they are packed into the buffers if `is_packed`, or copied into
    the given memory if `copy_in`. Otherwise they lie in the given memory from the start.

    Parameters have one payload, and `change_parameters` makes the next one of it; in given memory, they have two.
    """

    def __init__(
        self, sender: str, message: Message, slots: int, device: torch.device, is_packed: bool = False,
        memory: Memory | None = None, copy_in: bool = False,
    ) -> None:  # fmt: skip
        self.message = message
        self.is_in_place = message.is_parameters and not memory
        self.convert: Callable[[int], Any] | None = None  # slot -> what is sent of it, made inside the clock
        if is_packed or (memory and copy_in):
            self.convert = self._pack
        if is_packed and not memory:
            memory = lambda slot: torch.ones(message.packed_bytes, dtype=torch.uint8, device=device)  # noqa: E731
        self.digests: list[list[int]] = []  # per slot and field
        self.pool: list[Payload] = []  # the payloads that the sequence numbers are written into
        self.sent: list[Payload] = []  # what is sent of them: themselves, or their copies in the buffers
        self.buffers: list[torch.Tensor] = []  # flat memory of the payloads: of packed ones, or the given memory
        self.packed_views: list[list[Any]] = []  # the fields in each buffer
        self.whole_areas: list[list[memoryview]] = []  # per slot: areas of 8 bytes for the whole sequence number
        self.other_areas: list[list[tuple[Field, Any]]] = []  # per slot: areas that hold a part of it, or single bits
        for slot in range(slots):
            made = [(field, make_field(field, sender, slot)) for field in message.fields]
            self.digests.append([digest(arrays, number_bytes(field)) for field, arrays in made])
            if slot < slots - 1 and self.is_in_place:
                continue
            payload = sent = assemble(message, [_to_tensors(field, arrays, device) for field, arrays in made])
            if memory:
                self.buffers.append(buffer := memory(slot))
                self.packed_views.append(packed_views(buffer, message))
                pack(payload, message, self.packed_views[-1])
                sent = unpack(buffer, message)
                if is_packed:
                    sent = buffer.view(torch.int64) if message.packed_bytes % 8 == 0 else buffer
            self.sent.append(sent)
            self.pool.append(payload if self.convert else sent)
            self._find_areas(self.pool[-1])

    def _find_areas(self, payload: Payload) -> None:
        """Find the memory of a payload that the sequence numbers are written into."""
        self.whole_areas.append([])
        self.other_areas.append([])
        for field in self.message.fields:
            if size := number_bytes(field):
                tensor = tensors_of(payload, field)[0]
                row = tensor[(0,) * (tensor.dim() - 1)].reshape(-1)  # a view, also of a tensor with gaps
                if not tensor.is_cpu:
                    self.other_areas[-1].append((field, row.view(torch.uint8)[:size]))
                    continue
                area = to_array(row).view(np.uint8).data[:size]  # torch takes ten times as long to write to it
                if size == NUMBER_BYTES and field.dtype != "bool":
                    self.whole_areas[-1].append(area)
                else:
                    self.other_areas[-1].append((field, area))

    def convert_with(self, convert: Callable[[Payload, Message], Any]) -> None:
        """Send what this function makes of each payload, inside the clock."""
        self.convert = lambda slot: convert(self.pool[slot], self.message)

    def write_number(self, number: int) -> int:
        """Write the sequence number into the payload of this message, and return its slot."""
        slot = number % len(self.pool)
        encoded = number.to_bytes(NUMBER_BYTES, "little")
        for area in self.whole_areas[slot]:
            area[:] = encoded
        for field, area in self.other_areas[slot]:
            if isinstance(area, torch.Tensor):  # on a GPU
                area.copy_(torch.tensor(list(encode_number(field, number)), dtype=torch.uint8))
            else:
                area[:] = encode_number(field, number)
        return slot

    def payload(self, slot: int) -> Payload:
        """Return the payload to send. With --message packed, --copy-in and forms of studies, make it now."""
        return self.convert(slot) if self.convert else self.sent[slot]

    def _pack(self, slot: int) -> Payload:
        pack(self.pool[slot], self.message, self.packed_views[slot])
        return self.sent[slot]

    def change_parameters(self, number: int) -> None:
        """Invert what was sent as message `number` and changes with each message, as a trainer writes its next version.

        A reader that still needs them gets wrong bytes. In given memory, the bits before are restored as well.
        """
        changed = [self.buffers[n % len(self.buffers)] for n in (number, number - 1) if n and self.buffers]
        if self.is_in_place:
            changed = self.buffers[:1]
            for field in self.message.fields:
                items = flat_items(self.pool[0], field)
                changed += [items[part] for part in field.changed_items]
        for tensor in changed:
            torch.bitwise_not(tensor, out=tensor)


def _to_tensors(field: Field, arrays: list[Any], device: torch.device) -> list[Any]:
    if field.is_python:
        return arrays
    tensors = [from_array(array, field.dtype).to(device) for array in arrays]
    if not field.storage:
        return tensors
    storage = torch.zeros(field.storage, dtype=tensors[0].dtype, device=device)  # one for all tensors of the field
    if not field.is_list:
        return [storage[tuple(map(slice, field.shape))].copy_(tensors[0])]
    return [storage[index, : len(tensor)].copy_(tensor) for index, tensor in enumerate(tensors)]
