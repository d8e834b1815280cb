# SPDX-License-Identifier: Apache-2.0
"""Messages in shared memory: the sender writes where its readers can map it, and only a handle is sent.

Each task has one file, a ring of slots, each for one message. Each reader maps the slots once, and read-only.

    header   int64 values, each with one writer
             [slot]             number of the message in the slot                   written by the sender
             [slots + reader]   number of the last message that the reader released   written by that reader
    slots    packed messages (flows/message.py) that start at a page

The sender writes into a slot again only when every reader has released the message in it. Writes become visible in the
order of x86, and the handle passes through the kernel or a lock. On other processors, the transports that use rings are
skipped (plan/validate.py).
"""

import errno
import math
import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dataflow.endpoints.actor import Actor, Endpoint
from dataflow.endpoints.payload import Memory
from dataflow.endpoints.tensors import Payload, unpack
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER, Edge
from dataflow.plan.plan import Plan
from dataflow.workers.worker_group import WorkerGroup

Handle = list  # [task, number]: Ray sends a list of strings and integers without pickling


def _round_to_pages(count: int) -> int:
    pages = math.ceil(count / mmap.PAGESIZE)
    return pages * mmap.PAGESIZE


class _Segment:
    """The header and the slots of a mapped file."""

    def __init__(
        self, path: Path, slot_bytes: int, slots: int, readers: int, slots_mode: Any
    ) -> None:
        """Map the file, which exists. The header is writable in any case; slots_mode: a mode of np.memmap."""
        header = np.memmap(path, np.int64, mode="r+", shape=(slots + readers,))
        # A memoryview, because it is read inside the timed section: a value of an array costs ten times as much.
        values = header.view(np.ndarray).data
        self.written = values[:slots]
        self.released_by = values[slots:]
        first = _round_to_pages(8 * (slots + readers))
        stride = _round_to_pages(slot_bytes)
        self.slots = []
        for slot in range(slots):
            offset = first + slot * stride
            memory = np.memmap(path, np.uint8, slots_mode, offset, shape=(slot_bytes,))
            self.slots.append(memory.view(np.ndarray))


class Ring(_Segment):
    """The sender's side. Raise RunFailed if shared memory is full."""

    def __init__(
        self,
        folder: Path | str,
        sender: str,
        slot_bytes: int,
        slots: int,
        readers: list[str],
        timeout: float,
    ) -> None:
        """Create the sender's file in the folder, and map it; raise RunFailed if shared memory is full.

        Other errors of the file are those of Python, such as FileExistsError. timeout: seconds that `acquire` may wait.
        """
        path = Path(folder) / sender
        header_bytes = _round_to_pages(8 * (slots + len(readers)))
        size = header_bytes + slots * _round_to_pages(slot_bytes)
        try:
            with path.open("xb") as file:
                # Without it, a full /dev/shm is a SIGBUS at the first write.
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            path.unlink(missing_ok=True)
            raise RunFailed(
                f"{sender} needs {size / 2**20:,.0f} MiB of shared memory, and {path.parents[1]} is full: remove files "
                "there, enlarge it (docker run --shm-size), or send less"
            ) from None
        super().__init__(path, slot_bytes, slots, len(readers), slots_mode="r+")
        self.sender = sender
        self.readers = readers
        self.timeout = timeout
        self.newest = 0  # number of the message that was published last

    def acquire(self, number: int) -> None:
        """Wait until every reader has released what is in the slot of message `number`, or raise RunFailed."""
        needed = number - len(self.slots)
        if min(self.released_by) >= needed:
            return
        deadline = time.monotonic() + self.timeout
        while min(self.released_by) < needed:
            if time.monotonic() > deadline:
                released = list(self.released_by)
                slowest = self.readers[released.index(min(released))]
                raise RunFailed(
                    f"{slowest} did not release message {needed} of {self.sender} in {self.timeout:g} s"
                )
            time.sleep(0.0001)  # short against the time for which a reader keeps a view

    def write(self, tensor: torch.Tensor) -> Handle:
        """Wait until readers have released the next slot, copy a tensor of `slot_bytes` into it, and publish it.

        Return the handle for `View.open`. Raise RunFailed for a tensor of another size, and if a reader does not
        release the slot in time. A producer that computes into `slots` itself calls `acquire` before, and `publish`
        after it has written.
        """
        number = self.newest + 1
        slot_bytes = self.slots[0].nbytes
        if tensor.nbytes != slot_bytes:
            raise RunFailed(
                f"a tensor of {tensor.nbytes} bytes does not fill a slot of {slot_bytes}"
            )
        self.acquire(number)
        memory = torch.from_numpy(self.slots[number % len(self.slots)])
        memory.view(tensor.dtype).copy_(tensor.reshape(-1))
        self.publish(number)
        return [self.sender, number]

    def publish(self, number: int) -> None:
        self.written[number % len(self.slots)] = number
        self.newest = number


class View(_Segment):
    """A reader's side: read-only views. The reader may hold `keep` messages at a time, the newest one included."""

    def __init__(
        self, folder: Path | str, edge: Edge, slots: int, keep: int, readers: list[str]
    ) -> None:
        """Map the file that the edge's sender has made: the slots read-only, and the header to write into it.

        keep: how many messages the reader may hold.
        """
        self.sender = edge.source
        self.reader = edge.reader
        self.message = edge.message
        path = Path(folder) / self.sender
        super().__init__(path, self.message.packed_bytes, slots, len(readers), slots_mode="r")
        self.index = readers.index(self.reader)
        self.keep = keep
        self.newest = 0  # number of the message that was opened last
        self.released = 0
        # Strings and lists of numbers are copies and no views, so `open` unpacks them again.
        self.has_strings = any(field.is_python for field in self.message.fields)
        self.buffers = [torch.from_numpy(slot) for slot in self.slots]
        self.payloads = [unpack(buffer, self.message) for buffer in self.buffers]

    def open(self, handle: Handle) -> Payload:
        """Return the payload of a handle as views, and release messages older than the newest `keep`.

        Strings and lists of numbers are copies. Raise RunFailed if the handle is another sender's, or if its slot holds
        another message. The message stays there until `keep` newer ones are opened, or until `release`.
        """
        sender, number = handle
        slot = number % len(self.slots)
        if sender != self.sender or self.written[slot] != number:
            held = self.written[slot]
            raise RunFailed(
                f"{self.reader} received the handle of message {number} of {sender}, but the slot holds "
                f"message {held} of {self.sender}"
            )
        if number > self.newest:
            self.newest = number
            last_released = number - self.keep
            if last_released > self.released:
                self._release_to(last_released)
        if self.has_strings:
            return unpack(self.buffers[slot], self.message)
        return self.payloads[slot]

    def _release_to(self, number: int) -> None:
        """Let the sender write over the messages up to this one."""
        self.released = number
        self.released_by[self.index] = number

    def release(self) -> None:
        """Let the sender write over all messages that this reader has opened."""
        self._release_to(self.newest)


class RingEndpoint(Endpoint):
    """Write payloads into rings, and read views of others' rings."""

    def __init__(self, plan: Plan, name: str) -> None:
        self.rings: dict[str, Ring] = {}  # by sending task
        self.views: dict[tuple[str, str], View] = {}  # by reading task and sender
        super().__init__(plan, name)  # calls `memory` for each task

    def memory(self, task: str) -> Memory | None:
        """Create the task's ring, and return the memory of its slots; None if no other worker reads the task.

        It is called once per task. Raise RunFailed if shared memory is full.
        """
        readers = self._readers(task)
        if not readers:
            return None
        plan = self.plan
        flow = self.plan.task_flow
        ring = Ring(
            plan.shared_folder,
            sender=task,
            slot_bytes=flow.message(task).packed_bytes,
            slots=flow.slots(plan.options.in_flight),
            readers=readers,
            # The sender gives up after half of the time of an iteration, so that the error names the reader.
            timeout=plan.options.timeout / 2,
        )
        self.rings[task] = ring
        return lambda slot: torch.from_numpy(ring.slots[slot])

    def _readers(self, sender: str) -> list[str]:
        edges = self.task_flow.edges_from(sender)
        return sorted({edge.reader for edge in edges})

    def open_inputs(self) -> None:
        """Map the rings of all messages that this worker reads. All senders have made theirs before.

        Rings belong to the messages of the flow as its user draws it; edges are those that are sent (with a proxy).
        """
        folder = self.plan.shared_folder
        in_flight = self.plan.options.in_flight
        slots = self.task_flow.slots(in_flight)
        for edge in self.sent_flow.edges_to_actor(self.name):
            readers = self._readers(edge.source)
            view = View(folder, edge, slots, in_flight, readers)
            self.views[edge.reader, edge.source] = view

    def open_all(self, task: str, handles: Sequence[Handle]) -> list[Payload]:
        """Return the payloads of handles as views; raise RunFailed if the task does not read one of the messages."""
        payloads = []
        for handle in handles:
            # A compiled graph passes a failed deserialisation as an argument.
            if not isinstance(handle, list):
                raise RunFailed(f"{task} expected a handle, got {type(handle).__name__}")
            if (task, handle[0]) not in self.views:
                raise RunFailed(
                    f"{task} received a handle of {handle[0]}, whose messages it does not read: {handle}"
                )
            payloads.append(self.views[task, handle[0]].open(handle))
        return payloads

    def handle(self, task: str) -> Handle:
        return [task, self.rings[task].newest]

    def make_payload(self, number: int, task: str = DRIVER) -> Payload:
        """Wait until the slot's last message is released, write the sequence number, and publish the payload.

        Raise RunFailed if a reader does not release it in time. Without other readers, there is no ring and no wait.
        """
        if ring := self.rings.get(task):
            ring.acquire(number)
        payload = super().make_payload(number, task)
        if ring:
            ring.publish(number)
        return payload

    def release(self) -> None:
        super().release()
        for view in self.views.values():
            view.release()


class RingActor(RingEndpoint, Actor):
    """An actor that receives and returns handles."""

    def forward_step(self, task: str, *handles: Handle) -> Handle:
        super().forward_step(task, *self.open_all(task, handles))
        return self.handle(task) if task in self.rings else [task, 0]


def start_with_rings(
    workers: WorkerGroup, actor_class: type, driver_class: type, *extra: Any
) -> None:
    """Start the workers, and map all rings. Without their names, the memory is freed when the processes end."""
    workers.start(actor_class, driver_class, *extra)
    workers.call("open_inputs")
    for path in workers.plan.shared_folder.iterdir():
        path.unlink()
