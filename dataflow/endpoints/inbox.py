"""Hold the messages that one task reads, and verify their sequence numbers and bytes."""

import ctypes
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dataflow.endpoints.payload import (
    Digests,
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
    row = tensor[(0,) * (tensor.dim() - 1)] if tensor.nbytes >= size else tensor
    return bytes(row.contiguous().reshape(-1).view(torch.uint8)[:size].tolist())


class Views:
    """Find out whether tensors lie in shared memory, which means in files of /dev/shm that this process has mapped."""

    def __init__(self) -> None:
        self.by_edge: dict[str, bool | None] = {}  # None: only some of the edge's tensors do
        with open("/proc/self/maps") as maps:
            bounds = [line.split(" ", 1)[0].split("-") for line in maps if "/dev/shm/" in line]
        self.ranges = [(int(begin, 16), int(end, 16)) for begin, end in bounds]

    def add(self, edge: str, items: Sequence[Any]) -> None:
        for tensor in items:
            if isinstance(tensor, torch.Tensor) and tensor.nbytes:
                is_view = tensor.is_cpu and any(
                    begin <= tensor.data_ptr() < end for begin, end in self.ranges
                )
                self.by_edge[edge] = is_view if self.by_edge.get(edge, is_view) == is_view else None


class Inbox:
    """Hold the newest `keep` messages of one task; older ones leave only their sequence numbers until `verify`.

    A message is freed when `keep` newer ones have been taken, as by a loop that assigns each batch to one variable.
    So the time to free its memory is inside the clock, however many iterations are between two verifications.
    """

    def __init__(self, edges: tuple[Edge, ...], device: str, keep: int) -> None:
        self.edges, self.device = edges, device
        self.is_flat = all(edge.message.is_flat for edge in edges)
        # Per edge: name, whether it is a list, bytes and a reader of each sequence number.
        self.reads: list[list[tuple[str, bool, int, Any]]] = [
            [(field.name, field.is_list, size, (ctypes.c_char * size).from_address)
             for field in edge.message.fields if (size := number_bytes(field))]
            for edge in edges
        ]  # fmt: skip
        self.held: deque[tuple[int, Sequence[Payload]]] = deque(maxlen=keep)
        self.received: list[
            list[bytes]
        ] = []  # per message and field with a sequence number, the number as it was read
        self.last = 0  # number of the newest message

    def take(self, inputs: Sequence[Payload]) -> int:
        """Hold the inputs of the next message, and return its number: transports keep messages in order.

        Raise RunFailed if a field that has a sequence number is missing.
        """
        try:
            if not self.is_flat or len(inputs) != len(self.edges):
                check_inputs(inputs, self.edges)
            numbers = [
                read_first_bytes(
                    payload[name][0] if is_list else payload[name] if name else payload,
                    size,
                    read_at,
                )
                for payload, reads in zip(inputs, self.reads)  # noqa: B905  # it was checked, and strict takes time
                for name, is_list, size, read_at in reads
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

        Add the wrong bytes by edge and field to `wrong`. All bytes of a missing message are wrong.
        """
        received, self.received, self.last = self.received, [], last
        due, held = range(first, last + 1), dict(self.held)
        missing = abs(len(due) - len(received))
        for edge in self.edges:
            wrong.update(
                {_name(edge, field): missing * field.bytes for field in edge.message.fields}
            )
        for number, numbers in zip(due, received, strict=False):
            encoded, encoded_numbers = encode_number(number), iter(numbers)
            for edge, payload in zip(
                self.edges, held.get(number, [None] * len(self.edges)), strict=True
            ):
                slot = number % len(digests[edge.source])
                for field, expected in zip(
                    edge.message.fields, digests[edge.source][slot], strict=True
                ):
                    count, size = 0, number_bytes(field)
                    if payload is not None:
                        items, count = tensors_of(payload, field), max(1, field.bytes)
                        if self._has_type(items, field):
                            views.add(str(edge), items)
                            count = _count_wrong_bytes(
                                items, field, number, edge.source, slot, expected
                            )
                    # A sequence number that was late is wrong even if the payload has arrived by now.
                    if size and next(encoded_numbers) != encoded[number_part(field)] and not count:
                        count = size
                    wrong[_name(edge, field)] += count

    def verify_unsent(self, digests: Digests) -> dict[str, int]:
        """Verify memory to which nobody has sent, before the first message; return the wrong bytes that are found.

        They are those of each edge. A check that finds none could not fail.
        """
        wrong, self.last = (
            Counter[str](),
            1,
        )  # the memory is full of ones, as the number of message 1 could be
        self.take([like(edge.message, self.device) for edge in self.edges])
        self.verify(self.last, self.last, digests, wrong, Views())
        self.last = 0
        self.held.clear()
        return {
            str(edge): sum(wrong[_name(edge, field)] for field in edge.message.fields)
            for edge in self.edges
        }

    def _has_type(self, tensors: Any, field: Field) -> bool:
        kind = {"str": str, "ints": list, "floats": list}.get(field.dtype, torch.Tensor)
        if not isinstance(tensors, list) or any(not isinstance(tensor, kind) for tensor in tensors):
            return False
        if field.is_python:
            counts = [
                len(raw_bytes(item)) for item in tensors
            ]  # the hash covers all of them without their borders
            return counts == [length * ITEM_BYTES[field.dtype] for length in field.lengths]
        expected = [(getattr(torch, field.dtype), self.device, shape) for shape in field.shapes]
        return [(tensor.dtype, tensor.device.type, tensor.shape) for tensor in tensors] == expected


def _count_wrong_bytes(
    tensors: list[Any], field: Field, number: int, sender: str, slot: int, expected_digest: int
) -> int:
    """Return how many bytes of a received field, of the right shapes, differ from those sent as message `number`."""
    encoded = encode_number(number)[number_part(field)]
    received = tensors if field.is_python else list(map(to_array, tensors))
    if (
        bytes(raw_bytes(received[0])[: len(encoded)]) == encoded
        and digest(received, len(encoded)) == expected_digest
    ):
        return 0
    actual = b"".join(map(raw_bytes, received))
    expected = bytearray().join(map(raw_bytes, make_field(field, sender, slot)))
    expected[: len(encoded)] = encoded
    return int(
        np.count_nonzero(np.frombuffer(actual, np.uint8) != np.frombuffer(expected, np.uint8))
    )


def _name(edge: Edge, field: Field) -> str:
    return f"{edge}, {field.name}" if field.name else str(edge)
