"""The two ends of every edge: what a role and the driver do with a payload before and after it moved.

The one module that imports torch at the top. Nothing here hands a payload to anybody: the scripts do.
"""

import ctypes
import resource
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from common.flow.flow import DRIVER, Edge, Flow
from common.payload.pattern import (
    POOL_SIZE,
    count_wrong_bytes,
    digest,
    lies_in_shared_memory,
    make_payload,
    stamp,
    stamp_bytes,
    write_stamp,
)
from common.trace import recorder as trace


def read_stamp(tensor: torch.Tensor) -> int:
    """The stamp that the tensor starts with.

    On a CPU straight from memory: this runs inside the clock, right after hundreds of MiB have gone
    through the caches, where torch's indexing takes twice as long. Nothing else is asked here.
    """
    count = stamp_bytes(tensor.nbytes)
    if tensor.is_cpu:
        return int.from_bytes(ctypes.string_at(tensor.data_ptr(), count), "little")
    return int.from_bytes(bytes(tensor.reshape(-1).view(torch.uint8)[:count].tolist()), "little")


class Participant:
    """A sender and reader of payloads: every role, and the driver.

    Payloads are flat tensors on the device: int64 of shape (bytes / 8,), or uint8 of shape (bytes,)
    where 8 does not divide them.

    Args:
        arguments: the script's flags; what counts here is `device`, `threads`, `copy_out` and `trace`.
    """

    def __init__(self, flow: Flow, name: str, arguments: Namespace) -> None:
        self.name = name
        self.device = torch.device(arguments.device)
        self.reads: tuple[Edge, ...] = flow.edges_to(name)
        arrays = [self.place(slot, make_payload(name, slot, flow.emits_bytes(name))) for slot in range(POOL_SIZE)]
        self.digests = [digest(array) for array in arrays]
        self.pool = [torch.from_numpy(array).to(self.device) for array in arrays]
        # What emit writes the stamp into. On a CPU the arrays are the tensors' memory, and numpy
        # assigns one word ten times faster than torch, which counts inside the clock.
        self.stampable = arrays if self.device.type == "cpu" else self.pool
        # --copy-out: where the reader copies what it was given a view of. Written once, so the pages are warm.
        self.own = [self.like(edge).fill_(1) for edge in self.reads] if arguments.copy_out else None
        if arguments.trace:
            trace.install(self)
        self.expected_digests: dict[str, list[int]] = {}
        self.trips_received = 0
        self.inputs: tuple[torch.Tensor, ...] = ()
        self.stamps: list[list[int]] = []  # of every trip since the last check
        self.harness_seconds = 0.0

    def place(self, slot: int, payload: np.ndarray) -> np.ndarray:
        """Where a payload of the pool lies; who shares memory overrides it."""
        return payload

    def like(self, edge: Edge) -> torch.Tensor:
        """An empty tensor that this edge's payload fits into."""
        words, rest = divmod(edge.bytes, 8)
        shape, dtype = (edge.bytes, torch.uint8) if rest else (words, torch.int64)
        return torch.empty(shape, dtype=dtype, device=self.device)

    def expect(self, digests: dict[str, list[int]]) -> None:
        """Learn the digests of every sender's pool, so that nobody has to make others' payloads."""
        self.expected_digests = digests

    def own_digests(self) -> list[int]:
        """The digests of this participant's pool, for those who read it."""
        return self.digests

    def emit(self, trip: int) -> torch.Tensor:
        """This trip's payload, stamped. The driver does it before the clock runs, a role inside."""
        start = time.perf_counter()
        slot = trip % POOL_SIZE
        write_stamp(self.stampable[slot], trip)
        self.harness_seconds += (time.perf_counter() - start) * (self.name != DRIVER)
        return self.pool[slot]

    def receive(self, inputs: Sequence[torch.Tensor]) -> None:
        """Hold this trip's inputs until `verify`; reading the stamp waits for the device to have them.

        With --copy-out the reader copies each view into memory of its own, and holds that.

        Raises:
            TypeError: something other than one tensor per edge arrived. (A compiled graph hands a
                failed deserialisation to the method as its argument.)
        """
        start = time.perf_counter()
        if len(inputs) != len(self.reads) or not all(isinstance(tensor, torch.Tensor) for tensor in inputs):
            edges = ", ".join(map(str, self.reads))
            raise TypeError(f"expected a tensor for each of {edges}; got {[type(i).__name__ for i in inputs]}")
        if self.own is not None:
            copying = time.perf_counter()
            inputs = self.copy_out(inputs)
            start += time.perf_counter() - copying  # the reader's work, not the harness's
        self.inputs = tuple(inputs)
        self.stamps.append([read_stamp(tensor) for tensor in inputs])
        self.trips_received += 1
        self.harness_seconds += time.perf_counter() - start

    def copy_out(self, views: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """--copy-out: what the views show, in the reader's own memory."""
        return [mine.copy_(view) for mine, view in zip(self.own, views, strict=True)]

    def verify(self, trip: int, trips: int = 1) -> tuple[int, dict[str, bool]]:
        """Outside the clock: check the `trips` trips that ended with number `trip`, and let go of the inputs.

        Of each its stamps, of the last one every byte.

        Returns:
            The number of wrong bytes over all edges (trips that did not arrive are wrong as a whole, a
            stamp that was stale when it was handed over counts as its own eight bytes), and for each edge
            whether the reader saw a mapping of shared memory instead of its own copy.
        """
        inputs, stamps, self.stamps = self.inputs, self.stamps, []
        if trip == trips:
            self.harness_seconds = 0.0  # the first trips pay for much that has nothing to do with them
        if self.trips_received != trip or len(stamps) != trips or not inputs:
            self.release()
            return trips * sum(edge.bytes for edge in self.reads), {}
        wrong_bytes, mapped = 0, {}
        for edge, tensor, *found_stamps in zip(self.reads, inputs, *stamps, strict=True):
            mapped[str(edge)] = tensor.device.type == "cpu" and lies_in_shared_memory(tensor.data_ptr())
            like = self.like(edge)
            if (tensor.dtype, tensor.shape, tensor.device.type) != (like.dtype, like.shape, self.device.type):
                wrong_bytes += edge.bytes
                continue
            expected_digest = self.expected_digests[edge.source][trip % POOL_SIZE]
            wrong = count_wrong_bytes(tensor.contiguous().cpu().numpy(), trip, edge.source, expected_digest)
            expected_stamps = [stamp(number, edge.bytes) for number in range(trip - trips + 1, trip + 1)]
            stale = sum(found != expected for found, expected in zip(found_stamps, expected_stamps, strict=True))
            wrong_bytes += wrong or stamp_bytes(edge.bytes) * stale
        self.release()
        return wrong_bytes, mapped

    def release(self) -> None:
        """Let go of the inputs: mapped ones hold a channel's buffer, an object in the store or a ring's slot."""
        self.inputs = ()

    def spans(self) -> list[tuple[int, str, float, float]]:
        """--trace: when this process did what."""
        return trace.spans

    def costs(self) -> dict[str, Any]:
        """What this process took, asked at the end.

        peak_memory_bytes: its largest resident set; pages that it shares with others count as its own.
        harness_seconds: stamping and reading stamps after the first trip. On a GPU, reading a stamp waits
            for the payload, so there it is no longer the harness's own time.
        """
        return {
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "harness_seconds": self.harness_seconds,
        }


class Role(Participant):
    """A model without its computation: it reads its inputs and emits its payload."""

    def __init__(self, flow: Flow, name: str, arguments: Namespace) -> None:
        torch.set_num_threads(arguments.threads)
        super().__init__(flow, name, arguments)

    def forward_step(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Take one trip's inputs, in the order of the flow's edges, and give this role's payload.

        The role counts trips for itself, so that a trip that was dropped or came twice cannot pass.
        """
        self.receive(inputs)
        return self.emit(self.trips_received)

    def progress(self) -> int:
        """How many trips this role has received; asked when a trip does not end."""
        return self.trips_received
