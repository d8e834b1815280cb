# SPDX-License-Identifier: Apache-2.0
"""Hold the messages that one task reads, and verify their sequence numbers and bytes."""

import ctypes
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from dataflow.endpoints.payload import (
    Digests,
    choose_digests,
    digest,
    encode_number,
    make_field,
    number_bytes,
    number_part,
    raw_bytes,
)
from dataflow.endpoints.tensors import Payload, check_inputs, like, tensors_of, to_array
from dataflow.errors import RunFailed
from dataflow.flows.flow import Edge
from dataflow.flows.message import ITEM_BYTES, Field


def read_first_bytes(tensor: torch.Tensor, size: int, read_at: Callable[[int], Any]) -> bytes:
    """Return the first `size` bytes of a tensor, or fewer if it is smaller; `read_at` reads so many at an address."""
    # This runs in the timed section for every field, after hundreds of MiB have passed through the caches. On a CPU,
    # torch's indexing takes ten times as long as reading the memory, so nothing else is checked here.
    if tensor.is_cpu and tensor.nbytes >= size and tensor.is_contiguous():
        return read_at(tensor.data_ptr()).raw
    # The sequence number is in the first row. To copy the whole tensor could take long.
    if tensor.nbytes >= size:
        first_row = (0,) * (tensor.dim() - 1)
        tensor = tensor[first_row]
    flat = tensor.contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8)[:size].tolist())


class Views:
    """Find out whether tensors lie in shared memory, which means in files of /dev/shm that this process has mapped."""

    def __init__(self) -> None:
        self.by_edge: dict[str, bool | None] = {}  # None: only some of the edge's tensors do
        self.ranges: list[tuple[int, int]] = []  # first address, and the one after the last
        with open("/proc/self/maps") as maps:
            for line in maps:
                if "/dev/shm/" in line:
                    addresses, _, _ = line.partition(" ")
                    begin, _, end = addresses.partition("-")
                    bounds = (int(begin, 16), int(end, 16))
                    self.ranges.append(bounds)

    def add(self, edge: str, items: Sequence[Any]) -> None:
        """Take note of whether the tensors of an edge are views. Strings, numbers and empty tensors do not count."""
        for tensor in items:
            if not isinstance(tensor, torch.Tensor) or not tensor.nbytes:
                continue
            is_view = self._is_view(tensor)
            earlier = self.by_edge.get(edge, is_view)
            self.by_edge[edge] = is_view if earlier == is_view else None

    def _is_view(self, tensor: torch.Tensor) -> bool:
        if not tensor.is_cpu:
            return False
        address = tensor.data_ptr()
        return any(begin <= address < end for begin, end in self.ranges)


PYTHON_TYPES = {"str": str, "ints": list, "floats": list}  # of an item of a field of Python objects


class NumberRead(NamedTuple):
    """How the sequence number of a field is read from the inputs of a task."""

    edge: int  # index of the input
    field: str  # "": the message is one tensor
    is_list: bool
    size: int  # bytes
    read_at: Callable[[int], Any]  # reads so many bytes at an address


class Inbox:
    """Hold the newest `keep` messages of one task; older ones leave only their sequence numbers until `verify`.

    A message is freed when `keep` newer ones have been taken, as by a loop that assigns each batch to one variable.
    So the time to free its memory is inside the clock, however many iterations are between two verifications.
    """

    def __init__(self, edges: tuple[Edge, ...], device: torch.device, keep: int) -> None:
        """Prepare to read the sequence number of each field that has one, and to hold the last `keep` messages."""
        self.edges = edges
        self.device = device
        self.is_flat = all(edge.message.is_flat for edge in edges)
        self.reads: list[NumberRead] = []
        self.numbered: list[tuple[Edge, Field]] = []  # those of `reads`
        for index, edge in enumerate(edges):
            for field in edge.message.fields:
                size = number_bytes(field)
                if size:
                    kind = ctypes.c_char * size
                    read = NumberRead(
                        edge=index,
                        field=field.name,
                        is_list=field.is_list,
                        size=size,
                        read_at=kind.from_address,
                    )
                    self.reads.append(read)
                    self.numbered.append((edge, field))
        self.held: deque[tuple[int, Sequence[Payload]]] = deque(maxlen=keep)
        # Per message: the sequence number of each of `reads`, as it was read.
        self.received: list[list[bytes]] = []
        self.last = 0  # number of the newest message

    def take(self, inputs: Sequence[Payload]) -> int:
        """Hold the inputs of the next message, and return its number: transports keep messages in order.

        Raise RunFailed if they are not one payload per edge with the fields of its message, or if a field that has a
        sequence number has no tensor. The numbers that arrived are kept, and `verify` compares them.
        """
        try:
            if not self.is_flat or len(inputs) != len(self.edges):
                check_inputs(inputs, self.edges)
            # Each call of a function takes time here, also that of append.
            numbers = [
                read_first_bytes(
                    inputs[edge][name][0]
                    if is_list
                    else inputs[edge][name]
                    if name
                    else inputs[edge],
                    size,
                    read_at,
                )
                for edge, name, is_list, size, read_at in self.reads
            ]
        except (AttributeError, IndexError, TypeError):
            check_inputs(inputs, self.edges)
            raise RunFailed(
                f"expected tensors in all fields of {', '.join(map(str, self.edges))}"
            ) from None
        self.received.append(numbers)
        self.last += 1
        self.held.append((self.last, inputs))
        return self.last

    def verify(
        self, first: int, last: int, digests: Digests, wrong: Counter[str], views: Views
    ) -> None:
        """Verify all sequence numbers of the messages `first` to `last`, and every byte of those held.

        Add the wrong bytes by edge and field to `wrong`, and the tensors of messages held to `views`. All bytes of a
        message that is missing, or one too many, are wrong.
        """
        received = self.received
        self.received = []
        self.last = last
        due = range(first, last + 1)
        missing = abs(len(due) - len(received))
        for edge in self.edges:
            for field in edge.message.fields:
                name = _name(edge, field)
                wrong[name] += missing * field.bytes
        held = dict(self.held)
        nothing = [None] * len(self.edges)
        for number, numbers in zip(due, received, strict=False):
            late = self._find_late_numbers(number, numbers)
            inputs = held.get(number, nothing)
            for edge, payload in zip(self.edges, inputs, strict=True):
                counted = self._verify_payload(edge, payload, number, digests, views)
                for field in edge.message.fields:
                    name = _name(edge, field)
                    wrong_bytes = counted.get(field.name, 0)
                    if not wrong_bytes:
                        # A sequence number that was late is wrong even if the payload has arrived by now.
                        wrong_bytes = late.get(name, 0)
                    wrong[name] += wrong_bytes

    def _find_late_numbers(self, number: int, numbers: Sequence[bytes]) -> dict[str, int]:
        """Return by edge and field the bytes of each sequence number that was another one when it was read."""
        encoded = encode_number(number)
        late = {}
        for (edge, field), received in zip(self.numbered, numbers, strict=True):
            part = number_part(field)
            if received != encoded[part]:
                late[_name(edge, field)] = number_bytes(field)
        return late

    def _verify_payload(
        self, edge: Edge, payload: Payload | None, number: int, digests: Digests, views: Views
    ) -> dict[str, int]:
        """Return the wrong bytes of each field, and add its tensors to `views`.

        A field of another type or shape is not added, and all of its bytes are wrong, at least one. If the payload is
        None, because it is no longer held, nothing is returned.
        """
        counted: dict[str, int] = {}
        if payload is None:
            return counted
        of_slots = digests[edge.source]
        slot = number % len(of_slots)
        expected_digests = choose_digests(of_slots[slot], edge.message, number)
        sent = edge.message.at(number)
        for field, expected in zip(sent.fields, expected_digests, strict=True):
            items = tensors_of(payload, field)
            if self._has_type(items, field):
                views.add(str(edge), items)
                counted[field.name] = _count_wrong_bytes(
                    items, field, number, edge.source, slot, expected
                )
            else:
                counted[field.name] = max(1, field.bytes)
        return counted

    def try_on_unsent_memory(self, digests: Digests) -> dict[str, int]:
        """Try the verification on memory that nobody has written, and return the wrong bytes that it finds, by edge.

        The caller must fail if an edge has none: this check would accept anything. Call this before the first message.
        """
        number = 2  # not 1: the memory is full of ones, which would pass as message 1
        self.last = number - 1
        inputs = [like(edge.message.at(number), self.device) for edge in self.edges]
        self.take(inputs)
        wrong = Counter[str]()
        self.verify(number, number, digests, wrong, Views())
        self.last = 0
        self.held.clear()
        by_edge = {}
        for edge in self.edges:
            names = [_name(edge, field) for field in edge.message.fields]
            by_edge[str(edge)] = sum(wrong[name] for name in names)
        return by_edge

    def _has_type(self, tensors: Any, field: Field) -> bool:
        """Return whether a received field has the types, shapes and lengths of what was sent, and is on the device."""
        kind = PYTHON_TYPES.get(field.dtype, torch.Tensor)
        if not isinstance(tensors, list):
            return False
        for tensor in tensors:
            if not isinstance(tensor, kind):
                return False
        if field.is_python:
            return _has_lengths(tensors, field)
        dtype = getattr(torch, field.dtype)
        if len(tensors) != len(field.shapes):
            return False
        for tensor, shape in zip(tensors, field.shapes, strict=True):
            is_on_device = tensor.device.type == self.device.type
            if not is_on_device or (tensor.dtype, tensor.shape) != (dtype, shape):
                return False
        return True


def _has_lengths(items: list[Any], field: Field) -> bool:
    """Return whether strings or lists have their lengths: the hash covers all of them without their borders."""
    item_bytes = ITEM_BYTES[field.dtype]
    expected = [length * item_bytes for length in field.lengths]
    received = [len(raw_bytes(item)) for item in items]
    return received == expected


def _count_wrong_bytes(
    tensors: list[Any], field: Field, number: int, sender: str, slot: int, expected_digest: int
) -> int:
    """Return how many bytes of a received field, of the right shapes, differ from those sent as message `number`."""
    part = number_part(field)
    encoded = encode_number(number)[part]
    size = len(encoded)
    received = tensors
    if not field.is_python:
        received = [to_array(tensor) for tensor in tensors]
    first_bytes = bytes(raw_bytes(received[0])[:size])
    if first_bytes == encoded and digest(received, size) == expected_digest:
        return 0
    sent = make_field(field, sender, slot)
    expected = bytearray().join(map(raw_bytes, sent))
    expected[:size] = encoded
    actual = b"".join(map(raw_bytes, received))
    expected_bytes = np.frombuffer(expected, np.uint8)
    actual_bytes = np.frombuffer(actual, np.uint8)
    differs = actual_bytes != expected_bytes
    return int(np.count_nonzero(differs))


def _name(edge: Edge, field: Field) -> str:
    if not field.name:
        return str(edge)
    return f"{edge}, {field.name}"
