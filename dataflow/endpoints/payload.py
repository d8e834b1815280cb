# SPDX-License-Identifier: Apache-2.0
"""Make random payloads, hold those that one task sends, and write the sequence numbers into them.

Each sender has several different payloads, one per slot. Message N is the payload of slot N % slots (if sizes change:
its first rows), with the sequence number N in the first bytes of every field. A reader compares the sequence numbers,
and a 64-bit hash of all other bytes, field by field. Only if one of them differs, it makes the expected field again and
counts the wrong bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import xxhash
from numpy import ndarray
from numpy.random import Generator
from torch import Tensor

from common.timing import random_generator
from dataflow.endpoints import tensors
from dataflow.endpoints.tensors import Payload
from dataflow.flows.message import ITEM_BYTES, NUMBER_BYTES, Field, Message

# Sender -> per slot, the hash of the bytes of each field without sequence number: at the first size, at the next ...
Digests = dict[str, list[list[int]]]
# Slot -> the flat buffer in which its payload, or packed buffer, must lie.
Memory = Callable[[int], Tensor]
# Memory (a tensor on a GPU, or a memoryview), and the part of `encode_number` that is written into it.
# It is not a class: Python unpacks a tuple faster than a NamedTuple, and does so inside the clock.
Area = tuple[Any, slice]
NUMBER_BOOLS = 32  # a field of bools holds one bit of the sequence number per item
BOOLS = bytes.maketrans(b"01", b"\0\1")


def make_field(field: Field, sender: str, slot: int) -> list[Any]:
    """Return an array (or string) for each of `field.shapes`: random, but equal in every process."""
    if field.is_parameter and slot % 2:
        return [_make_changed_parameter(field, sender, slot)]
    if field.offsets_of:
        offsets = np.cumsum([0, *field.offsets_of])
        return [offsets]
    generator = random_generator(sender, slot, field.name)
    if field.dtype == "str":
        return [_make_letters(count, generator) for count in field.lengths]
    arrays = [_make_array(shape, field, generator) for shape in field.shapes]
    if field.is_python:
        return [array.tolist() for array in arrays]
    return arrays


def _make_changed_parameter(field: Field, sender: str, slot: int) -> ndarray:
    """Return the second state of a parameter: the first one, with some items inverted."""
    (array,) = make_field(field, sender, slot - 1)
    items = array.reshape(-1).view(f"u{array.itemsize}")
    for part in field.changed_items:
        items[part] = np.invert(items[part])
    return array


def _make_letters(count: int, generator: Generator) -> str:
    """Return random letters from a to z."""
    codes = generator.integers(97, 123, count, np.uint8)
    return codes.tobytes().decode()


def _make_array(shape: tuple[int, ...], field: Field, generator: Generator) -> ndarray:
    """Return random bools, numbers from 0 to 1, or integers of the field's dtype.

    Integers can have each value of the type, and a bfloat16 all bits. Lists of numbers are the indices of experts.
    """
    dtype = np.dtype(field.array_dtype)
    if dtype.kind == "b":
        bits = generator.integers(0, 2, shape, np.uint8)
        return bits.view(dtype)
    if dtype.kind == "f":
        numbers = generator.random(shape)
        return numbers.astype(dtype)
    limits = np.iinfo("uint8" if field.is_python else dtype)
    return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def number_bytes(field: Field) -> int:
    """Return the bytes of the sequence number in the first row of the field's first tensor.

    0 if that is empty, or if the values are offsets, which readers use.
    """
    first_shape = field.shapes[0]
    is_empty = 0 in first_shape
    if field.is_python or field.offsets_of or is_empty:
        return 0
    row_items = first_shape[-1] if first_shape else 1
    row_bytes = row_items * ITEM_BYTES[field.dtype]
    encoded_bytes = NUMBER_BOOLS if field.dtype == "bool" else NUMBER_BYTES
    return min(row_bytes, encoded_bytes)


def number_part(field: Field) -> slice:
    """Return the part of `encode_number` that is written into the field."""
    begin = NUMBER_BYTES if field.dtype == "bool" else 0
    end = begin + number_bytes(field)
    return slice(begin, end)


def encode_number(number: int, with_bools: bool = True) -> bytes:
    """Return the 8 bytes of a sequence number, lowest first, and then each of its bits as a bool, lowest first."""
    encoded = number.to_bytes(NUMBER_BYTES, "little")
    if not with_bools:
        return encoded
    highest_first = f"{number:0{NUMBER_BOOLS}b}"
    bits = highest_first[::-1].encode()
    return encoded + bits.translate(BOOLS)


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
    array = np.ascontiguousarray(tensor)
    return array.reshape(-1).view(np.uint8).data


def digest_parts(array: ndarray, skip: int, row_counts: Sequence[int]) -> list[int]:
    """Return what `digest` returns of the first rows of an array, for each number of rows. Each byte is read once."""
    raw = raw_bytes(array)
    row_bytes = len(raw) // len(array)
    state = xxhash.xxh3_64()
    begin = skip
    digests = {}
    for rows in sorted(row_counts):
        end = rows * row_bytes
        state.update(raw[begin:end])
        begin = end
        digests[rows] = state.intdigest()
    return [digests[rows] for rows in row_counts]


def choose_digests(of_slot: Sequence[int], message: Message, number: int) -> Sequence[int]:
    """Return the hash of each field of message `number` from those of its slot, which are of all sizes."""
    fields = len(message.fields)
    begin = number % len(message.sizes) * fields
    return of_slot[begin : begin + fields]


@dataclass(frozen=True)
class PayloadForm:
    """What is sent of payloads, and where it lies.

    Inside the timed section, payloads are packed into buffers if `is_packed`, or copied into the given memory if
    `copy_in`. Otherwise they lie in the given memory from the start.
    """

    is_packed: bool = False
    memory: Memory | None = None  # None: anywhere
    copy_in: bool = False


PLAIN = PayloadForm()  # the fields, anywhere


class Outbox:
    """Make `slots` (at least 1) different payloads of a message before the timed section.

    Parameters have one payload, of which `change_parameters` makes the next one; in given memory, they have two. With
    one payload, `pool`, `sent` and `areas` have one entry, and `digests` still has one per slot.
    """

    def __init__(
        self,
        sender: str,
        message: Message,
        slots: int,
        device: torch.device,
        form: PayloadForm = PLAIN,
    ) -> None:
        """Make the payloads and hashes of all slots. If `is_in_place`, only the payload of the last slot is kept."""
        memory = form.memory
        self.sizes = message.sizes
        self.message = message.largest
        message = self.message
        self.is_on_cpu = device.type == "cpu"
        self.has_bools = any(field.dtype == "bool" for field in message.fields)
        self.is_packed = form.is_packed
        self.is_in_place = message.is_parameters and not memory
        # Slot -> what is sent of its payload, made inside the clock. None: the payload itself.
        self.convert: Callable[[int], Any] | None = None
        if form.is_packed or (memory and form.copy_in):
            self.convert = self._pack
        self.digests: list[list[int]] = []  # per slot, as in Digests
        self.pool: list[Payload] = []  # the payloads that the sequence numbers are written into
        # What is sent of them: themselves, or their copies in the buffers.
        self.sent: list[Payload] = []
        # Flat memory of the payloads: of packed ones, or the given memory.
        self.buffers: list[Tensor] = []
        self.parts: list[list[Tensor]] = []  # the fields in each buffer
        self.areas: list[list[Area]] = []  # of the sequence number, per slot
        if form.is_packed and not memory:
            memory = partial(_make_buffer, message, device)
        self._make_payloads(sender, slots, device, memory)
        if len(self.sizes) > 1:
            self._cut_payloads()

    def _make_payloads(
        self, sender: str, slots: int, device: torch.device, memory: Memory | None
    ) -> None:
        """Make the payload of each slot, in the given memory if there is one, and its hashes."""
        for slot in range(slots):
            fields = [make_field(field, sender, slot) for field in self.message.fields]
            self.digests.append(self._digest_fields(fields))
            if self.is_in_place and slot < slots - 1:
                continue  # the last payload is the only one
            payload = self._to_payload(fields, device)
            buffer = memory(slot) if memory else None
            self._add_payload(payload, buffer)

    def _digest_fields(self, fields: list[list[Any]]) -> list[int]:
        """Return the hash of each field without its sequence number, or of the only field at each size."""
        if len(self.sizes) > 1:
            (array,) = fields[0]
            skip = number_bytes(self.message.fields[0])
            return digest_parts(array, skip, self._row_counts)
        digests = []
        for field, arrays in zip(self.message.fields, fields, strict=True):
            skip = number_bytes(field)
            digests.append(digest(arrays, skip))
        return digests

    def _to_payload(self, fields: list[list[Any]], device: torch.device) -> Payload:
        """Return the payload of arrays and strings, on the device."""
        made = []
        for field, arrays in zip(self.message.fields, fields, strict=True):
            items = _to_tensors(field, arrays, device)
            made.append(items)
        return tensors.assemble(self.message, made)

    def _add_payload(self, payload: Payload, buffer: Tensor | None) -> None:
        """Add the payload of the next slot, which is written into the buffer if there is one."""
        message = self.message
        sent = payload
        if buffer is not None:
            parts = tensors.split_buffer(buffer, message)
            tensors.pack(payload, message, parts)
            self.buffers.append(buffer)
            self.parts.append(parts)
            sent = self._view(buffer)
        numbered = payload if self.convert else sent
        self.sent.append(sent)
        self.pool.append(numbered)
        self.areas.append(self._find_areas(numbered))

    @property
    def _row_counts(self) -> list[int]:
        return [message.fields[0].shape[0] for message in self.sizes]

    def _cut_payloads(self) -> None:
        """Send the first rows of the payloads: for each pair of a payload and a size, in the order of the numbers."""
        whole = self.pool
        row_counts = self._row_counts
        self.pool = []
        self.areas = []
        for number in range(len(whole) * len(row_counts)):
            tensor = whole[number % len(whole)]
            rows = row_counts[number % len(row_counts)]
            part = tensors.first_rows(tensor, rows)
            self.pool.append(part)
            self.areas.append(self._find_areas(part))
        self.sent = self.pool

    def _view(self, buffer: Tensor) -> Payload:
        """Return what is sent of a payload in a buffer: the buffer if `is_packed`, or the fields in it."""
        message = self.message
        if not self.is_packed:
            return tensors.unpack(buffer, message)
        if message.packed_bytes % 8 == 0:
            return buffer.view(torch.int64)
        return buffer

    def _find_areas(self, payload: Payload) -> list[Area]:
        """Return where the sequence number is written, in each field that has one."""
        areas = []
        for field in self.message.fields:
            size = number_bytes(field)
            if not size:
                continue
            tensor = tensors.tensors_of(payload, field)[0]
            memory: Any = _first_bytes(tensor, size)
            if self.is_on_cpu:
                memory = memory.numpy().data  # torch takes ten times as long to write to it
            part = number_part(field)
            areas.append((memory, part))
        return areas

    def make(self, number: int) -> Payload:
        """Write the sequence number into the payload of this message, and return what is sent of it."""
        slot = number % len(self.pool)
        encoded: Any = encode_number(number, self.has_bools)
        if not self.is_on_cpu:
            encoded = torch.tensor(list(encoded), dtype=torch.uint8)
        for memory, part in self.areas[slot]:
            memory[:] = encoded[part]
        if self.convert:
            return self.convert(slot)
        return self.sent[slot]

    def convert_with(self, convert: Callable[[Payload, Message], Any]) -> None:
        """Send what this function makes of each payload, inside the clock."""
        self.convert = lambda slot: convert(self.pool[slot], self.message)

    def _pack(self, slot: int) -> Payload:
        """Copy the payload of a slot into its buffer, and return what is sent of it."""
        tensors.pack(self.pool[slot], self.message, self.parts[slot])
        return self.sent[slot]

    def change_parameters(self, number: int) -> None:
        """Invert what was sent as message `number` and changes with each message, as a trainer writes its next version.

        A reader that still needs them gets wrong bytes. In given memory, the bits before are restored as well.
        """
        for tensor in self._find_changed(number):
            torch.bitwise_not(tensor, out=tensor)

    def _find_changed(self, number: int) -> list[Tensor]:
        """Return the memory that `change_parameters` inverts."""
        if not self.is_in_place:
            newest = [sent for sent in (number, number - 1) if sent > 0]
            slots = [sent % len(self.buffers) for sent in newest]
            return [self.buffers[slot] for slot in slots]
        changed = self.buffers[:1]
        for field in self.message.fields:
            items = tensors.flat_items(self.pool[0], field)
            changed += [items[part] for part in field.changed_items]
        return changed


def _make_buffer(message: Message, device: torch.device, slot: int) -> Tensor:
    """Return memory for a packed message. Its pages are in memory already."""
    return torch.ones(message.packed_bytes, dtype=torch.uint8, device=device)


def _first_bytes(tensor: Tensor, size: int) -> Tensor:
    """Return a view of the first bytes of a tensor's first row. The tensor may have gaps between its rows."""
    first_row = (0,) * (tensor.dim() - 1)
    items = tensor[first_row].reshape(-1)
    return items.view(torch.uint8)[:size]


def _to_tensors(field: Field, arrays: list[Any], device: torch.device) -> list[Any]:
    """Return the tensors of a field. They share the memory of the arrays on a CPU, and are copies on a GPU.

    If the field has a storage, they are copies, as views of a new one. Strings and lists of numbers are returned as
    they are.
    """
    if field.is_python:
        return arrays
    made = [tensors.from_array(array, field.dtype).to(device) for array in arrays]
    if not field.storage:
        return made
    dtype = tensors.torch_dtype(field.dtype)
    storage = torch.zeros(field.storage, dtype=dtype, device=device)
    if field.is_list:
        views = [storage[row, :length] for row, length in enumerate(field.lengths)]
    else:
        corner = tuple(slice(count) for count in field.shape)
        views = [storage[corner]]
    for view, tensor in zip(views, made, strict=True):
        view.copy_(tensor)
    return views
