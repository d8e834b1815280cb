# SPDX-License-Identifier: Apache-2.0
"""Tensors that readers fetch by NIXL from the memory of their sender, without the progress thread of NIXL.

    sender                                             reader
    waits until slot N % slots has been read
    writes message N into this slot
    sends [sender, N, addresses]         ------->      reads the slot into memory of its own: the only copy
                                         <-------      a notification, which says that it has read N

A sender writes into a slot again only after every reader of the last message there has said that it has read it. A
reader reads each message once, before it says so. So no reader gets a message that is half old and half new.

The kernel copies the bytes while the reader waits for them (process_vm_readv, which UCX calls cma). The sender does
nothing for it, so it needs no thread that polls. This works between processes of one user on one machine, if they see
each other's process ids and the kernel allows it. A first read, when a reader connects, finds out whether it does.
"""

import mmap
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import torch

from dataflow.endpoints.tensors import Payload, list_tensors, unpack
from dataflow.errors import RunFailed
from dataflow.flows.flow import Edge
from dataflow.flows.message import Message

PAUSE_SECONDS = 0.0001  # between two looks for the end of a read, or for a notification
# A first read that needs the sender's help never ends. So its reader waits for this time, and as much longer as a copy
# of the message takes at this rate. Both are choices.
FIRST_READ_SECONDS = 10.0
SLOWEST_BYTES_PER_SECOND = 50e6
ADVICE = (
    "all processes must be of one user on one machine, share process ids and shared memory, and be allowed to call "
    "process_vm_readv (docs/rdt.md)"
)
# Sender, number, and address and bytes of each tensor: Ray sends lists of strings and integers without pickling.
Handle = list
Region = tuple[int, int]  # address and bytes


class Agent:
    """The agent of NIXL in this process, which uses it from one thread at a time."""

    def __init__(self, name: str, threads: int = 1) -> None:
        """Make the agent, with UCX as its only backend. No memory is registered, and no sender connected yet."""
        from nixl._api import nixl_agent, nixl_agent_config

        self.name = name
        self.threads = threads
        config = nixl_agent_config(enable_prog_thread=False, backends=[])
        self.nixl = nixl_agent(name, config)
        # Otherwise, UCX connects processes by TCP too, and after a notification it ends a read only when the sender has
        # called NIXL as well, for which it needs the progress thread.
        settings = {"ucx_error_handling_mode": "none"}
        if threads > 1:
            # Threads that sleep between two reads. Each takes some of the descriptors of a read.
            settings |= {"num_threads": str(threads), "split_batch_size": "1"}
        self.nixl.create_backend("UCX", settings)
        # Edge -> number of the newest message that its reader has read.
        self.numbers_read: dict[str, int] = {}

    def metadata(self) -> bytes:
        """Return what the agents of readers must know of this one, after it has registered all that they read."""
        return self.nixl.get_agent_metadata()

    def add(self, metadata: bytes) -> None:
        """Connect to a sender with its metadata; raise RunFailed if it cannot be reached."""
        try:
            self.nixl.add_remote_agent(metadata)
        except Exception as error:  # those of the binding have no common class
            raise RunFailed(
                f"{self.name}: NIXL finds no way to a sender ({error}): {ADVICE}"
            ) from None

    def register(self, tensors: Sequence[torch.Tensor]) -> list[Region]:
        """Register the memory of tensors, which reads then may use, and return where it is."""
        self.nixl.register_memory(list(tensors))
        return [(tensor.data_ptr(), tensor.nbytes) for tensor in tensors]

    def describe(self, regions: Sequence[Region]) -> Any:
        """Return the descriptors of memory, in as many parts as there are threads."""
        parts = [(*part, 0) for part in split_regions(regions, self.threads)]
        return self.nixl.get_xfer_descs(parts, "DRAM")

    def read(
        self, edge: Edge, sender_agent: str, handle: Handle, target: Any, timeout: float
    ) -> None:
        """Read what a handle describes into the target, wait for the end, and tell the sender.

        Raise RunFailed if NIXL cannot read it, or not within the timeout (s). target: descriptors of own memory, which
        is registered and has the same sizes.
        """
        _, number, regions = handle
        notification = f"{number} {edge}".encode()
        try:
            source = self.describe(regions)
            request = self.nixl.initialize_xfer("READ", target, source, sender_agent, notification)
            state = self.nixl.transfer(request)
            state = self._wait(request, state, timeout)
            self.nixl.release_xfer_handle(request)
        except Exception as error:  # those of the binding have no common class
            state = repr(error)
        if state != "DONE":
            raise RunFailed(f"{edge}: {edge.reader} cannot read its message by NIXL: {state}")

    def _wait(self, request: Any, state: str, timeout: float) -> str:
        """Return the state in which a transfer ends, or a text that it has not ended in time (s)."""
        deadline = time.monotonic() + timeout
        while state == "PROC":
            time.sleep(PAUSE_SECONDS)
            state = self.nixl.check_xfer_state(request)
            if time.monotonic() > deadline:
                return f"it takes longer than {timeout:g} s"
        return state

    def take_notifications(self) -> None:
        """Take note of what readers say that they have read."""
        for texts in self.nixl.get_new_notifs().values():
            for text in texts:
                number, _, edge = text.decode().partition(" ")
                self.numbers_read[edge] = int(number)


def split_regions(regions: Sequence[Region], count: int) -> list[Region]:
    """Return the parts of regions, each of which is cut into so many, at pages. A part of no bytes is left out.

    The first parts of all regions come first, because a thread of NIXL gets descriptors that follow each other.
    """
    parts = []
    for index in range(count):
        for address, nbytes in regions:
            begin = _find_border(nbytes, index, count)
            end = _find_border(nbytes, index + 1, count)
            if begin < end:
                parts.append((address + begin, end - begin))
    return parts


def _find_border(nbytes: int, index: int, count: int) -> int:
    """Return where a part of so many bytes begins: at a page. The end of the last one is that of all bytes."""
    if index == count:
        return nbytes
    pages = nbytes * index // count // mmap.PAGESIZE
    return pages * mmap.PAGESIZE


class Sender:
    """The slots of one sender. Its edges read each message once; message N lies in slot N % slots."""

    def __init__(
        self,
        agent: Agent,
        name: str,
        slots: Sequence[Sequence[torch.Tensor]],
        edges: Sequence[Edge],
        timeout: float,
    ) -> None:
        self.agent = agent
        self.name = name
        self.edges = {str(edge): edge for edge in edges}
        self.timeout = timeout  # seconds that a wait for readers may take
        self.newest = 0  # number of the message that was sent last
        self.regions = [agent.register(tensors) for tensors in slots]

    def acquire(self, number: int) -> None:
        """Wait until every reader has read the message in the slot of this one; raise RunFailed after the timeout.

        The next handle is that of this message.
        """
        self.newest = number
        needed = number - len(self.regions)
        deadline = time.monotonic() + self.timeout
        self.agent.take_notifications()
        while late := self._find_late(needed):
            if time.monotonic() > deadline:
                raise RunFailed(
                    f"{late.reader} did not read message {needed} of {self.name} in {self.timeout:g} s"
                )
            time.sleep(PAUSE_SECONDS)
            self.agent.take_notifications()

    def _find_late(self, needed: int) -> Edge | None:
        """Return an edge whose reader has not yet read this message; None if there is none."""
        for name, edge in self.edges.items():
            if self.agent.numbers_read.get(name, 0) < needed:
                return edge
        return None

    def handle(self) -> Handle:
        """Return what readers need to read the newest message."""
        regions = self.regions[self.newest % len(self.regions)]
        return [self.name, self.newest, [list(region) for region in regions]]


@dataclass(frozen=True)
class Target:
    """Memory that a message is received into."""

    memory: np.ndarray  # flat, uint8
    descriptors: Any
    payload: Payload  # the message's tensors, in this memory


def make_target(agent: Agent, message: Message) -> Target:
    """Return registered memory for one message. Its pages are in memory already."""
    buffer = torch.ones(message.packed_bytes, dtype=torch.uint8)
    payload = unpack(buffer, message)
    # Parameters lie in many places of their sender's memory, and other messages in one.
    tensors = list_tensors(payload) if message.is_parameters else [buffer]
    descriptors = agent.describe(agent.register(tensors))
    return Target(buffer.numpy(), descriptors, payload)


def reused_targets(agent: Agent, message: Message, count: int) -> Iterator[Target]:
    """Return so many targets in turn, without end: a message is overwritten by the one that comes `count` later."""
    return cycle([make_target(agent, message) for _ in range(count)])


class KeptTargets(Iterator[Target]):
    """Targets without end, for readers that may keep messages: no tensor is left of the memory of the next one.

    Memory of which the reader has freed all tensors is used again. If there is none, it is new.
    """

    def __init__(self, agent: Agent, message: Message) -> None:
        self.agent = agent
        self.message = message
        self.free: deque[Target] = deque()

    def __next__(self) -> Target:
        target = self.free.pop() if self.free else make_target(self.agent, self.message)
        # Each tensor of this array keeps it alive, and so does each view of such a tensor.
        memory = target.memory[:]
        weakref.finalize(memory, self.free.append, target)
        payload = unpack(torch.from_numpy(memory), self.message)
        return Target(target.memory, target.descriptors, payload)


def first_read_seconds(message: Message, timeout: float) -> float:
    """Return how long the first read of a message may take (s): it grows with its bytes.

    timeout: seconds that each later read may take, which are the most (half of --timeout).
    """
    copy_seconds = message.packed_bytes / SLOWEST_BYTES_PER_SECOND
    return min(FIRST_READ_SECONDS + copy_seconds, timeout)


class Reader:
    """One reader of one sender's messages."""

    def __init__(
        self, agent: Agent, edge: Edge, sender_agent: str, targets: Iterator[Target], timeout: float
    ) -> None:
        self.agent = agent
        self.edge = edge
        self.sender_agent = sender_agent
        self.targets = targets
        self.timeout = timeout  # seconds that a read may take
        self.newest = 0  # number of the message that was read last

    def try_to_read(self, handle: Handle) -> None:
        """Read a slot before the first message; raise RunFailed if NIXL cannot do it without the sender's help."""
        try:
            self._read(handle, first_read_seconds(self.edge.message, self.timeout))
        except RunFailed as error:
            raise RunFailed(f"{error}: {ADVICE}") from None

    def read(self, handle: Handle) -> Payload:
        """Return the payload of a message; raise RunFailed if it is another sender's, or not the next one."""
        sender, number, _ = handle
        if sender != self.edge.source or number != self.newest + 1:
            raise RunFailed(
                f"{self.edge.reader} received the handle of message {number} of {sender}, and expected that of "
                f"message {self.newest + 1} of {self.edge.source}"
            )
        payload = self._read(handle, self.timeout)
        self.newest = number
        return payload

    def _read(self, handle: Handle, timeout: float) -> Payload:
        target = next(self.targets)
        self.agent.read(self.edge, self.sender_agent, handle, target.descriptors, timeout)
        return target.payload
