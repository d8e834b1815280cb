"""Make random payloads, hold those that one task sends, and write the sequence numbers into them.

Each sender has several different payloads, one per slot. Message N is the payload of slot N % slots, with the sequence
number N in the first bytes of every field. A reader compares the sequence numbers, and a 64-bit hash of all other
bytes, field by field. Only if one of them differs, it makes the expected field again and counts the wrong bytes.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xxhash

from common.timing import random_generator
from dataflow.endpoints import tensors
from dataflow.endpoints.tensors import Payload
from dataflow.flows.message import ARRAY_DTYPES, ITEM_BYTES, NUMBER_BYTES, Field, Message

Digests = dict[
    str, list[list[int]]
]  # sender -> per slot and field, the hash of the bytes without sequence number
Memory = Callable[
    [int], torch.Tensor
]  # slot -> the flat buffer in which its payload, or packed buffer, must lie
NUMBER_BOOLS = 32  # a field of bools holds one bit of the sequence number per item
BOOLS = bytes.maketrans(b"01", b"\0\1")


def make_field(field: Field, sender: str, slot: int) -> list[Any]:
    """Return an array (or string) for each of `field.shapes`: random, but equal in every process."""
    if (
        field.is_parameter and slot % 2
    ):  # the second state of a parameter is the first one with some items inverted
        (array,) = make_field(field, sender, slot - 1)
        items = array.reshape(-1).view(f"u{array.itemsize}")
        for part in field.changed_items:
            items[part] = np.invert(items[part])
        return [array]
    generator = random_generator(sender, slot, field.name)
    if field.offsets_of:
        return [np.cumsum([0, *field.offsets_of])]
    if field.dtype == "str":
        return [
            generator.integers(97, 123, count, np.uint8).tobytes().decode()
            for count in field.lengths
        ]
    dtype = np.dtype(ARRAY_DTYPES.get(field.dtype, field.dtype))
    if (
        dtype.kind in "iu"
    ):  # all values of the type, and all bits of a bfloat16; lists of numbers are experts' indices
        limits = np.iinfo("uint8" if field.is_python else dtype)
        arrays = [
            generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
            for shape in field.shapes
        ]
    elif dtype.kind == "b":
        arrays = [generator.integers(0, 2, shape, np.uint8).view(dtype) for shape in field.shapes]
    else:
        arrays = [generator.random(shape).astype(dtype) for shape in field.shapes]
    return [array.tolist() for array in arrays] if field.is_python else arrays


def number_bytes(field: Field) -> int:
    """Return the bytes of the sequence number in the first row of the field's first tensor.

    0 if that is empty, or if the values are offsets, which readers use.
    """
    if field.is_python or field.offsets_of or not math.prod(field.shapes[0]):
        return 0
    row_bytes = (field.shapes[0] or (1,))[-1] * ITEM_BYTES[field.dtype]
    return min(row_bytes, NUMBER_BOOLS if field.dtype == "bool" else NUMBER_BYTES)


def number_part(field: Field) -> slice:
    """Return the part of `encode_number` that is written into the field."""
    begin = NUMBER_BYTES if field.dtype == "bool" else 0
    return slice(begin, begin + number_bytes(field))


def encode_number(number: int, with_bools: bool = True) -> bytes:
    """Return the 8 bytes of a sequence number, lowest first, and then each of its bits as a bool, lowest first."""
    encoded = number.to_bytes(NUMBER_BYTES, "little")
    return (
        encoded + f"{number:0{NUMBER_BOOLS}b}"[::-1].encode().translate(BOOLS)
        if with_bools
        else encoded
    )


def digest(items: Sequence[Any], skip: int) -> int:
    """Return the XXH3-64 hash of a field's arrays or strings, without the first `skip` bytes of the first one."""
    state = xxhash.xxh3_64()
    for part in map(raw_bytes, items):
        state.update(part[skip:])
        skip = 0
    return state.intdigest()


def raw_bytes(tensor: Any) -> memoryview:
    """Return the bytes of an array, a string or a list of numbers, without gaps."""
    if isinstance(tensor, str):
        return memoryview(tensor.encode())
    return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data


class Outbox:
    """Make `slots` different payloads of a message before the timed section.

    Inside the timed section, they are packed into the buffers if `is_packed`, or copied into the given memory if
    `copy_in`. Otherwise they lie in the given memory from the start. Parameters have one payload, of which
    `change_parameters` makes the next one; in given memory, they have two.
    """

    def __init__(
        self, sender: str, message: Message, slots: int, device: torch.device, is_packed: bool = False,
        memory: Memory | None = None, copy_in: bool = False,
    ) -> None:  # fmt: skip
        self.message, self.is_on_cpu = message, device.type == "cpu"
        self.has_bools = any(field.dtype == "bool" for field in message.fields)
        self.is_in_place = message.is_parameters and not memory
        # Slot -> what is sent of its payload, made inside the clock. None: the payload itself.
        self.convert: Callable[[int], Any] | None = (
            self._pack if is_packed or (memory and copy_in) else None
        )
        if is_packed and not memory:
            memory = lambda slot: torch.ones(message.packed_bytes, dtype=torch.uint8, device=device)  # noqa: E731
        self.digests: list[list[int]] = []  # per slot and field
        self.pool: list[Payload] = []  # the payloads that the sequence numbers are written into
        self.sent: list[
            Payload
        ] = []  # what is sent of them: themselves, or their copies in the buffers
        self.buffers: list[
            torch.Tensor
        ] = []  # flat memory of the payloads: of packed ones, or the given memory
        self.parts: list[list[torch.Tensor]] = []  # the fields in each buffer
        self.areas: list[
            list[tuple[Any, slice]]
        ] = []  # per slot: memory, and which part of the number it holds
        for slot in range(slots):
            made = [(field, make_field(field, sender, slot)) for field in message.fields]
            self.digests.append([digest(arrays, number_bytes(field)) for field, arrays in made])
            if slot < slots - 1 and self.is_in_place:
                continue
            payload = sent = tensors.assemble(
                message, [_to_tensors(field, arrays, device) for field, arrays in made]
            )
            if memory:
                self.buffers.append(buffer := memory(slot))
                self.parts.append(tensors.split_buffer(buffer, message))
                tensors.pack(payload, message, self.parts[-1])
                sent = tensors.unpack(buffer, message)
                if is_packed:
                    sent = buffer.view(torch.int64) if message.packed_bytes % 8 == 0 else buffer
            self.sent.append(sent)
            self.pool.append(payload if self.convert else sent)
            self.areas.append(self._find_areas(self.pool[-1]))

    def _find_areas(self, payload: Payload) -> list[tuple[Any, slice]]:
        areas: list[tuple[Any, slice]] = []
        for field in self.message.fields:
            if size := number_bytes(field):
                tensor = tensors.tensors_of(payload, field)[0]
                row = tensor[(0,) * (tensor.dim() - 1)].reshape(
                    -1
                )  # a view, also of a tensor with gaps
                area = row.view(torch.uint8)[:size]
                # torch takes ten times as long to write to it.
                areas.append((area.numpy().data if self.is_on_cpu else area, number_part(field)))
        return areas

    def make(self, number: int) -> Payload:
        """Write the sequence number into the payload of this message, and return what is sent of it."""
        slot = number % len(self.pool)
        encoded: Any = encode_number(number, self.has_bools)
        if not self.is_on_cpu:
            encoded = torch.tensor(list(encoded), dtype=torch.uint8)
        for area, part in self.areas[slot]:
            area[:] = encoded[part]
        return self.convert(slot) if self.convert else self.sent[slot]

    def convert_with(self, convert: Callable[[Payload, Message], Any]) -> None:
        """Send what this function makes of each payload, inside the clock."""
        self.convert = lambda slot: convert(self.pool[slot], self.message)

    def _pack(self, slot: int) -> Payload:
        tensors.pack(self.pool[slot], self.message, self.parts[slot])
        return self.sent[slot]

    def change_parameters(self, number: int) -> None:
        """Invert what was sent as message `number` and changes with each message, as a trainer writes its next version.

        A reader that still needs them gets wrong bytes. In given memory, the bits before are restored as well.
        """
        changed = [
            self.buffers[n % len(self.buffers)] for n in (number, number - 1) if n and self.buffers
        ]
        if self.is_in_place:
            changed = self.buffers[:1]
            for field in self.message.fields:
                items = tensors.flat_items(self.pool[0], field)
                changed += [items[part] for part in field.changed_items]
        for tensor in changed:
            torch.bitwise_not(tensor, out=tensor)


def _to_tensors(field: Field, arrays: list[Any], device: torch.device) -> list[Any]:
    if field.is_python:
        return arrays
    made = [tensors.from_array(array, field.dtype).to(device) for array in arrays]
    if not field.storage:
        return made
    storage = torch.zeros(
        field.storage, dtype=made[0].dtype, device=device
    )  # one for all tensors of the field
    if not field.is_list:
        return [storage[tuple(map(slice, field.shape))].copy_(made[0])]
    return [storage[index, : len(tensor)].copy_(tensor) for index, tensor in enumerate(made)]
