"""Hold the messages that one task reads, and verify their sequence numbers and bytes."""

import ctypes
from bisect import bisect
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dataflow.endpoints.payload import Digests, count_wrong_bytes, encode_number, number_bytes
from dataflow.endpoints.tensors import Payload, check_inputs, tensors_of, to_array
from dataflow.errors import RunFailed
from dataflow.flows.flow import Edge
from dataflow.flows.message import Field


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
        self.ranges: list[tuple[int, float]] = sorted((int(begin, 16), int(end, 16)) for begin, end in bounds)

    def add(self, edge: str, tensors: Sequence[torch.Tensor]) -> None:
        for tensor in tensors:
            if tensor.nbytes:
                index = bisect(self.ranges, (tensor.data_ptr(), float("inf"))) - 1
                is_view = tensor.is_cpu and index >= 0 and tensor.data_ptr() < self.ranges[index][1]
                self.by_edge[edge] = is_view if self.by_edge.get(edge, is_view) == is_view else None


class Inbox:
    """Hold the newest `keep` messages of one task; older ones leave only their sequence numbers until `verify`.

    A message is freed when `keep` newer ones have been taken, as by a loop that assigns each batch to one variable.
    So the time to free its memory is inside the clock, however many iterations are between two verifications.
    """

    def __init__(self, edges: tuple[Edge, ...], device: str, keep: int) -> None:
        self.edges, self.device = edges, device
        # Per edge: the fields with a sequence number, what `_read_numbers` needs of each, and a reader of its bytes.
        self.reads: list[list[tuple[Field, str, bool, int, Any]]] = [
            [(field, field.name, field.is_list, size, (ctypes.c_char * size).from_address)
             for field in edge.message.fields if (size := number_bytes(field))]
            for edge in edges
        ]  # fmt: skip
        # If every message is one tensor, as in the demo: the arguments of `read_first_bytes` for each.
        self.flat_reads = [reads[0][3:] for reads in self.reads if all(edge.message.is_flat for edge in edges)]
        self.held: deque[tuple[int, Sequence[Payload]]] = deque(maxlen=keep)
        self.received: list[list[list[bytes]]] = []  # per message, edge and field, the number as it was read
        self.expect(1)

    def expect(self, first: int) -> None:
        """Take the next message as that of this number."""
        self.last = first - 1

    def take(self, inputs: Sequence[Payload]) -> int:
        """Hold the inputs of the next message, and return its sequence number: transports keep messages in order."""
        encoded = self._read_numbers(inputs)
        self.last = number = self.last + 1
        self.held.append((number, inputs))
        self.received.append(encoded)
        return number

    def _read_numbers(self, inputs: Sequence[Payload]) -> list[list[bytes]]:
        """Return the encoded sequence number of each edge and field. Raise RunFailed if they have none."""
        try:
            if self.flat_reads and len(inputs) == len(self.flat_reads):
                return [[read_first_bytes(tensor, *read)] for tensor, read in zip(inputs, self.flat_reads)]  # noqa: B905
            check_inputs(inputs, self.edges)
            encoded = []
            for edge, reads, payload in zip(self.edges, self.reads, inputs, strict=True):
                values = {"": payload} if edge.message.is_flat else payload
                encoded.append([
                    read_first_bytes(values[name][0] if is_list else values[name], size, read_at)
                    for _, name, is_list, size, read_at in reads
                ])  # fmt: skip
            return encoded
        except (AttributeError, IndexError, TypeError):
            check_inputs(inputs, self.edges)
            raise RunFailed(f"expected tensors in all fields of {', '.join(map(str, self.edges))}") from None

    def verify(self, first: int, last: int, digests: Digests, wrong: Counter[str], views: Views) -> None:
        """Verify all sequence numbers of the messages `first` to `last`, and every byte of those held.

        Add the wrong bytes by edge and field to `wrong`. All bytes of a missing message are wrong.
        """
        received, self.received = self.received, []
        due, held = range(first, last + 1), dict(self.held)
        for index, edge in enumerate(self.edges):
            prefix = str(edge) if edge.message.is_flat else f"{edge}, "
            for field in edge.message.fields:
                wrong[prefix + field.name] += abs(len(due) - len(received)) * field.bytes
            for number, encoded_by_edge in zip(due, received, strict=False):
                counts: dict[str, int] = {}
                if number in held:
                    counts = self._check_bytes(edge, held[number][index], number, digests, views)
                # A sequence number that was late is wrong even if the payload has arrived by now.
                for (field, _, _, size, _), encoded in zip(self.reads[index], encoded_by_edge[index], strict=True):
                    if not counts.get(field.name) and encoded != encode_number(field, number):
                        counts[field.name] = size
                for name, wrong_bytes in counts.items():
                    wrong[prefix + name] += wrong_bytes
        self.expect(last + 1)

    def _check_bytes(self, edge: Edge, payload: Payload, number: int, digests: Digests, views: Views) -> dict[str, int]:
        """Return the wrong bytes by field, and enter the tensors into `views`."""
        slot, wrong = number % len(digests[edge.source]), dict[str, int]()
        for field, expected in zip(edge.message.fields, digests[edge.source][slot], strict=True):
            tensors = tensors_of(payload, field)
            if not self._has_type(tensors, field):
                wrong[field.name] = max(1, field.bytes)
                continue
            if not field.is_python:
                views.add(str(edge), tensors)
                tensors = list(map(to_array, tensors))
            wrong[field.name] = count_wrong_bytes(tensors, field, number, edge.source, slot, expected)
        return wrong

    def _has_type(self, tensors: Any, field: Field) -> bool:
        if not isinstance(tensors, list) or len(tensors) != len(field.shapes):
            return False
        if field.is_python:
            return all(isinstance(item, str if field.dtype == "str" else list) for item in tensors)
        kind = getattr(torch, field.dtype), self.device
        return all(
            isinstance(tensor, torch.Tensor) and (tensor.dtype, tensor.device.type, tensor.shape) == (*kind, shape)
            for tensor, shape in zip(tensors, field.shapes, strict=True)
        )
