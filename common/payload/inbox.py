"""What one task reads: the last messages of each edge, their stamps, and the check of every byte."""

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from common.errors import RunFailed
from common.flow.flow import Edge
from common.flow.message import Field
from common.payload import pattern
from common.payload.leaves import Payload, leaves_of, refuse_other
from common.payload.maps import SharedMappings

FARTHEST = 256  # trips by which a number may differ from the one that is next; more is a stamp that went wrong


def reader(count: int) -> Callable[[int], Any]:
    """Of `count` bytes at an address, as ctypes reads them."""
    return (ctypes.c_char * count).from_address


def read_stamp(tensor: torch.Tensor, count: int, at: Callable[[int], Any]) -> bytes:
    """The first `count` bytes of a tensor, or as many as it has; `at` is the reader of so many.

    On a CPU straight from memory: this runs inside the clock for every field, right after hundreds of MiB have gone
    through the caches, where torch's indexing takes ten times as long. Nothing else is asked here.
    """
    if tensor.is_cpu and tensor.nbytes >= count and tensor.is_contiguous():
        return at(tensor.data_ptr()).raw
    # A stamp lies in the first row, and all of the tensor may be much to copy.
    row = tensor[(0,) * (tensor.dim() - 1)] if tensor.nbytes >= count else tensor
    return bytes(row.contiguous().reshape(-1).view(torch.uint8)[:count].tolist())


class Inbox:
    """The reading end of a task's edges.

    keep: of how many messages the inputs are held until `verify`; of older ones only the stamps.
    takes: of a number, whether this reader is to have that message; others are another replica's.
    """

    def __init__(
        self, edges: tuple[Edge, ...], device: str, slots: int, keep: int,
        takes: Callable[[int], bool] = lambda number: True,
    ) -> None:  # fmt: skip
        self.edges, self.device, self.slots, self.takes = edges, device, slots, takes
        self.marked: list[list[tuple[Field, int]]] = [
            [(field, count) for field in edge.message.fields if (count := pattern.stamp_bytes(field))] for edge in edges
        ]
        if edges:  # the number is read where most of it fits
            moduli = [2**count if field.dtype == "bool" else 256**count for field, count in self.marked[0]]
            self.modulus = max(moduli)
            self.bearer = moduli.index(self.modulus)
            self.bools = self.marked[0][self.bearer][0].dtype == "bool"
        self.reads = [
            [(field.name, field.ragged, count, reader(count)) for field, count in marked] for marked in self.marked
        ]
        # Where every message is one tensor, as in the demo: how each one's stamp is read.
        self.bare = [own[0][2:] for own in self.reads] if all(edge.message.bare for edge in edges) else []
        self.held: deque[tuple[int, Sequence[Payload]]] = deque(maxlen=keep)
        self.stamps: dict[int, list[list[bytes]]] = {}  # of every number since the last check
        self.last = 0
        self.checked = 0

    def take(self, inputs: Sequence[Payload]) -> int:
        """Hold a message's inputs, and read its number from the first one's stamp.

        Raises:
            RunFailed: something other than one payload an edge arrived.
        """
        found = self._stamps(inputs)
        number = self.number_of(found[0][self.bearer])
        self.held.append((number, inputs))
        self.stamps[number] = found
        self.last = number
        return number

    def _stamps(self, inputs: Sequence[Payload]) -> list[list[bytes]]:
        """Of each edge the stamps of its fields."""
        if self.bare and len(inputs) == len(self.bare):
            try:
                return [[read_stamp(tensor, *own)] for tensor, own in zip(inputs, self.bare)]  # noqa: B905
            except AttributeError:  # one of them is no tensor
                refuse_other(inputs, self.edges)
                raise
        refuse_other(inputs, self.edges)
        found = []
        for edge, reads, payload in zip(self.edges, self.reads, inputs, strict=True):
            values = {"": payload} if edge.message.bare else payload
            try:
                found.append([
                    read_stamp(values[name][0] if ragged else values[name], count, at)
                    for name, ragged, count, at in reads
                ])  # fmt: skip
            except (AttributeError, IndexError, TypeError):
                raise RunFailed(f"expected tensors in every field of {edge}; got something else") from None
        return found

    def number_of(self, mark: bytes) -> int:
        """Which number this is: by its stamp, unless that is one that cannot be, or was here or checked already."""
        bits = int.from_bytes(mark, "little")
        if bits == self.last + 1 and not self.bools and bits not in self.stamps:  # as nearly always
            return bits
        if self.bools:
            bits = sum((byte & 1) << index for index, byte in enumerate(mark))
        ahead = (bits - self.last - 1) % self.modulus
        ahead -= self.modulus if ahead >= self.modulus - min(self.modulus // 4, FARTHEST) else 0
        number = self.last + 1 + ahead
        if ahead >= FARTHEST or number in self.stamps or number <= self.checked:
            number = self.last + 1
            while number in self.stamps:
                number += 1
        return number

    def verify(self, first: int, last: int, digests: dict[str, list[list[int]]]) -> tuple[dict[str, int], dict]:
        """Outside the clock: check the messages `first` to `last`, of each the stamps, of those held every byte.

        Args:
            digests: of each sender, slot and field.

        Returns:
            Wrong bytes by "edge" or "edge, field", where there are any (what did not arrive is wrong as a whole; a
            stamp that was stale when it was handed over counts its own bytes), and for each edge whether its
            tensors lay in shared memory: True, False, or None where some did and some did not.
        """
        stamps, self.stamps = self.stamps, {}
        wrong: dict[str, int] = {}
        mapped: dict[str, bool | None] = {}
        maps = SharedMappings()

        def add(edge: Edge, field: Field, count: int) -> None:
            if count:
                name = f"{edge}, {field.name}" if field.name else str(edge)
                wrong[name] = wrong.get(name, 0) + count

        due = list(filter(self.takes, range(first, last + 1)))
        missing = [number for number in due if number not in stamps]
        strangers = len(stamps.keys() - set(due))
        held = {number: inputs for number, inputs in self.held if number in due}
        for index, edge in enumerate(self.edges):
            for _ in (*missing, *range(strangers - len(missing))):
                for field in edge.message.fields:
                    add(edge, field, field.bytes)
            for number, found in stamps.items():
                if number not in due:
                    continue
                bad = {}
                if number in held:
                    bad = self._wrong_fields(edge, held[number][index], number, digests, maps, mapped)
                for (field, count), mark in zip(self.marked[index], found[index], strict=True):
                    if not bad.get(field.name) and mark != pattern.stamp(field, number):
                        bad[field.name] = count
                for field in edge.message.fields:
                    add(edge, field, bad.get(field.name, 0))
        self.release()
        self.last = self.checked = last
        return wrong, mapped

    def _wrong_fields(
        self, edge: Edge, payload: Payload, number: int, digests: dict, maps: SharedMappings, mapped: dict
    ) -> dict[str, int]:
        """Of one payload the wrong bytes of each field; whether it is mapped is noted on the way."""
        slot = number % self.slots
        wrong = {}
        for index, field in enumerate(edge.message.fields):
            leaves = leaves_of(payload, field)
            if not self._has_type(leaves, field):
                wrong[field.name] = max(1, field.bytes)
                continue
            for leaf in () if field.python else leaves:
                if leaf.nbytes:
                    lies = leaf.is_cpu and maps.hold(leaf.data_ptr())
                    mapped[str(edge)] = lies if mapped.get(str(edge), lies) == lies else None
            arrays = leaves if field.python else [leaf.cpu().numpy() for leaf in leaves]
            expected = digests[edge.source][slot][index]
            wrong[field.name] = pattern.count_wrong_bytes(arrays, field, number, edge.source, slot, expected)
        return wrong

    def _has_type(self, leaves: Any, field: Field) -> bool:
        if not isinstance(leaves, list) or len(leaves) != len(field.shapes):
            return False
        if field.python:
            return all(isinstance(leaf, str if field.dtype == "str" else list) for leaf in leaves)
        kind = getattr(torch, field.dtype), self.device
        return all(
            isinstance(leaf, torch.Tensor) and leaf.shape == shape and (leaf.dtype, leaf.device.type) == kind
            for leaf, shape in zip(leaves, field.shapes, strict=True)
        )

    def release(self) -> None:
        """Let go of the inputs: mapped ones hold a channel's buffer, an object in the store or a ring's slot."""
        self.held.clear()
