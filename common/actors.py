"""The two ends of every edge: what a role and the driver do with a payload before and after it moved.

The one module that imports Ray and torch at the top. Nothing here hands a payload to anybody: the
scripts do.
"""

import ctypes
import resource
import time
from collections.abc import Sequence
from typing import Any

import ray
import torch
from ray.dag.context import DAGContext

from common.flows import Edge, Flow
from common.payloads import POOL_SIZE, count_wrong_bytes, digest, lies_in_shared_memory, make_payload

# Room in a channel for what is not payload: the pickled frame around an in-band tensor is under 1 KiB.
CHANNEL_HEADROOM_BYTES = 64 * 1024


def first_word(tensor: torch.Tensor) -> int:
    """The eight bytes that the tensor starts with, as an integer; -1 if it has none.

    On a CPU straight from memory: this runs inside the clock, right after hundreds of MiB have gone
    through the caches, where torch's indexing takes twice as long. Nothing else is asked here.
    """
    if tensor.nbytes < 8:
        return -1
    if tensor.is_cpu:
        return ctypes.c_int64.from_address(tensor.data_ptr()).value
    return int(tensor.reshape(-1)[0])


class Participant:
    """A sender and reader of payloads: every role, and the driver.

    Payloads are int64 tensors of shape (bytes / 8,) on `device`.
    """

    def __init__(self, flow: Flow, name: str, device: str) -> None:
        self.name = name
        self.device = torch.device(device)
        self.reads: tuple[Edge, ...] = flow.edges_to(name)
        arrays = [make_payload(name, slot, flow.emits_bytes(name)) for slot in range(POOL_SIZE)]
        self.digests = [digest(array) for array in arrays]
        self.pool = [torch.from_numpy(array).to(self.device) for array in arrays]
        # What emit writes the stamp into. On a CPU the arrays are the tensors' memory, and numpy
        # assigns one word ten times faster than torch, which counts inside the clock.
        self.stampable = arrays if self.device.type == "cpu" else self.pool
        self.expected_digests: dict[str, list[int]] = {}
        self.trips_received = 0
        self.inputs: tuple[torch.Tensor, ...] = ()
        self.stamps: list[int] = []
        self.harness_seconds = 0.0

    def expect(self, digests: dict[str, list[int]]) -> None:
        """Learn the digests of every sender's pool, so that nobody has to make others' payloads."""
        self.expected_digests = digests

    def emit(self, trip: int) -> torch.Tensor:
        """This trip's payload, stamped."""
        slot = trip % POOL_SIZE
        self.stampable[slot][0] = trip
        return self.pool[slot]

    def receive(self, inputs: Sequence[torch.Tensor]) -> None:
        """Hold this trip's inputs until `verify`; reading the stamp waits for the device to have them.

        Raises:
            TypeError: something other than one tensor per edge arrived. (A compiled graph hands a
                failed deserialisation to the method as its argument.)
        """
        start = time.perf_counter()
        if len(inputs) != len(self.reads) or not all(isinstance(tensor, torch.Tensor) for tensor in inputs):
            edges = ", ".join(map(str, self.reads))
            raise TypeError(f"expected a tensor for each of {edges}; got {[type(i).__name__ for i in inputs]}")
        self.inputs = tuple(inputs)
        self.stamps = [first_word(tensor) for tensor in inputs]
        self.trips_received += 1
        self.harness_seconds += time.perf_counter() - start

    def verify(self, trip: int) -> tuple[int, dict[str, bool]]:
        """Outside the clock: compare what arrived on trip `trip` byte for byte, and let go of it.

        Returns:
            The number of wrong bytes over all edges (a trip that did not arrive is wrong as a whole,
            a stamp that was stale when it was handed over counts as its own eight bytes), and for
            each edge whether the reader saw a mapping of shared memory instead of its own copy.
        """
        inputs, stamps = self.inputs, self.stamps
        self.release()
        if trip == 1:
            self.harness_seconds = 0.0  # the first trip pays for much that has nothing to do with it
        if self.trips_received != trip or not inputs:
            return sum(edge.bytes for edge in self.reads), {}
        wrong_bytes, mapped = 0, {}
        for edge, tensor, stamp in zip(self.reads, inputs, stamps, strict=True):
            mapped[str(edge)] = tensor.device.type == "cpu" and lies_in_shared_memory(tensor.data_ptr())
            found = (tensor.dtype, tensor.shape, tensor.device.type)
            if found != (torch.int64, (edge.bytes // 8,), self.device.type):
                wrong_bytes += edge.bytes
            else:
                expected_digest = self.expected_digests[edge.source][trip % POOL_SIZE]
                wrong = count_wrong_bytes(tensor.contiguous().cpu().numpy(), trip, edge.source, expected_digest)
                wrong_bytes += wrong or 8 * (stamp != trip)
        return wrong_bytes, mapped

    def release(self) -> None:
        """Let go of the inputs: mapped ones hold a channel's buffer, or an object in the store."""
        self.inputs = ()

    def costs(self) -> dict[str, Any]:
        """What this process took, asked at the end.

        peak_memory_bytes: its largest resident set; pages that it shares with others count as its own.
        harness_seconds: stamping and reading stamps after the first trip. On a GPU, reading a stamp waits
            for the payload, so there it is no longer the harness's own time.
        node: the id of the Ray node that it runs on.
        """
        return {
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "harness_seconds": self.harness_seconds,
            "node": ray.get_runtime_context().get_node_id(),
        }


class Role(Participant):
    """A model without its computation: it reads its inputs and emits its payload."""

    def __init__(self, flow: Flow, name: str, device: str, threads: int) -> None:
        torch.set_num_threads(threads)
        # Ray ignores the argument of experimental_compile; the process that writes a channel decides.
        DAGContext.get_current().buffer_size_bytes = flow.emits_bytes(name) + CHANNEL_HEADROOM_BYTES
        super().__init__(flow, name, device)

    def forward_step(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Take one trip's inputs, in the order of the flow's edges, and give this role's payload.

        The role counts trips for itself, so that a trip that was dropped or came twice cannot pass.
        """
        self.receive(inputs)
        start = time.perf_counter()
        payload = self.emit(self.trips_received)
        self.harness_seconds += time.perf_counter() - start
        return payload

    def own_digests(self) -> list[int]:
        """The digests of this role's pool, for those who read it."""
        return self.digests

    def progress(self) -> int:
        """How many trips this role has received; asked when a trip does not end."""
        return self.trips_received
