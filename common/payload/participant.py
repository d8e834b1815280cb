"""The two ends of every edge: what an actor (model.py) and the driver do with a message before and after it moved.

Nothing here hands a payload to anybody: the scripts do.
"""

import gc
import os
import resource
import time
from collections.abc import Sequence
from typing import Any

import torch

from common.errors import RunFailed
from common.flow.flow import DRIVER, Task
from common.payload import faults, forms, leaves
from common.payload.inbox import Inbox
from common.payload.leaves import Payload
from common.payload.outbox import Memory, Outbox
from common.plan.plan import Plan
from common.trace import recorder
from common.trace.board import Board


class Participant:
    """An actor's tasks, or the driver's ends.

    What travels is the flow of `plan.wire`: each message as it is, or with --message packed one flat tensor.

    Args:
        plan: what is run, and where.
        name: of the actor, or DRIVER.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        options, flow = plan.options, plan.flow
        self.plan, self.name, self.flow, self.wire = plan, name, flow, plan.wire
        self.device, self.packed = torch.device(plan.device), plan.packed
        slots = options.slots
        self.place = plan.places[name]
        self.tasks: dict[str, Task] = {task.name: task for task in flow.tasks_of(self.place.actor)}
        reads = list(self.tasks) if name != DRIVER else [DRIVER]
        self.outboxes = {
            task: Outbox(task, flow.message(task), slots, self.device, plan.packed, self.memory(task)) for task in reads
        }
        edges = {task: flow.edges_to(task) for task in reads}
        self.inboxes = {t: Inbox(edges[t], plan.device, slots, options.in_flight, self.place.takes) for t in reads}
        # --copy-out: where the reader copies what it was given a view of. Written once, so the pages are warm.
        self.own = {
            task: [[leaves.like(edge.message, self.device) for edge in inbox.edges] for _ in range(options.in_flight)]
            for task, inbox in self.inboxes.items() if options.copy_out
        }  # fmt: skip
        self.digests: dict[str, list[list[int]]] = {}
        self.harness_seconds = 0.0
        self.minor_faults = 0
        self.board = Board.join(plan.folder, name, plan.participants, plan.trips)
        if options.trace:
            recorder.install(self)
        if plan.fault and flow.actor(plan.fault.who) == self.place.actor and not self.place.replica:
            faults.install(self, plan.fault)

    def memory(self, task: str) -> Memory | None:
        """Where this task's payloads lie; who shares memory overrides it."""
        return None

    def learn(self, digests: dict[str, list[list[int]]]) -> None:
        """Learn the digests of every sender's pool, so that nobody has to make others' payloads."""
        self.digests = digests

    def own_digests(self) -> dict[str, list[list[int]]]:
        """The digests of the pools of this participant's tasks, for those who read them."""
        return {task: outbox.digests for task, outbox in self.outboxes.items()}

    def emit(self, number: int, task: str = DRIVER) -> Payload:
        """A task's payload, stamped. The driver does it before the clock runs, an actor inside."""
        start = time.perf_counter()
        outbox = self.outboxes[task]
        slot = outbox.stamp(number)
        if self.name != DRIVER:
            self.harness_seconds += time.perf_counter() - start
        return self.pack(outbox, slot) if self.packed else outbox.payload(slot)

    def pack(self, outbox: Outbox, slot: int) -> Payload:
        """--message packed: the payload as one buffer."""
        return outbox.payload(slot)

    def receive(self, inputs: Sequence[Payload], task: str = DRIVER) -> int:
        """Hold a task's inputs until `verify`, and give their number; reading it waits for the device to have them.

        With --message packed the inputs are buffers, of which the payloads are views. With --copy-out the reader
        copies each view into memory of its own, and holds that.

        Raises:
            RunFailed: something other than one payload an edge arrived.
        """
        if self.packed:
            inputs = self.unpack(inputs, task)
        if self.own:
            inputs = self.copy_out(inputs, task)
        start = time.perf_counter()
        number = self.inboxes[task].take(inputs)
        self.board.received(number)
        self.harness_seconds += time.perf_counter() - start
        return number

    def unpack(self, inputs: Sequence[Any], task: str) -> list[Payload]:
        """--message packed: the fields of each buffer, as views."""
        edges, wires = self.inboxes[task].edges, self.wire.edges_to(task)
        leaves.refuse_other(inputs, wires)
        for edge, buffer in zip(wires, inputs, strict=True):
            if buffer.nbytes != edge.bytes:
                raise RunFailed(f"expected {edge.bytes} packed bytes for {edge}; got {buffer.nbytes}")
        return [forms.unpack(buffer, edge.message) for edge, buffer in zip(edges, inputs, strict=True)]

    def copy_out(self, inputs: Sequence[Payload], task: str) -> list[Payload]:
        """--copy-out: what the views show, in the reader's own memory; the next one of as many as may be held."""
        leaves.refuse_other(inputs, self.inboxes[task].edges)
        own = self.own[task]
        own.append(own.pop(0))
        return [leaves.copy(view, mine) for view, mine in zip(inputs, own[-1], strict=True)]

    def verify(self, first: int, last: int) -> tuple[dict[str, int], dict[str, bool | None]]:
        """Outside the clock: check the messages `first` to `last` of every edge, and let go of the inputs.

        Returns:
            Wrong bytes by edge and field, where there are any, and of each edge whether the reader saw shared memory.
        """
        if first == 1:  # the first trip pays for much that has nothing to do with it
            self.harness_seconds = 0.0
            self.minor_faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            # What lives by now lives to the end; going through torch and Ray for garbage takes 0.2 s of some trip.
            gc.freeze()
        wrong: dict[str, int] = {}
        mapped: dict[str, bool | None] = {}
        for inbox in self.inboxes.values():
            found, seen = inbox.verify(first, last, self.digests)
            wrong |= found
            mapped |= seen
        self.release()
        return wrong, mapped

    def release(self) -> None:
        """Let go of the inputs."""
        for inbox in self.inboxes.values():
            inbox.release()

    def spans(self) -> list[tuple[int, str, float, float]]:
        """--trace: when this process did what."""
        return recorder.spans

    def costs(self) -> dict[str, Any]:
        """What this process took, asked at the end; `pid` tells whether two participants share it.

        harness_seconds: stamping and reading stamps after the first trip. On a GPU, reading a stamp waits for the
            payload, so there it is no longer the harness's own time.
        """
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "pid": os.getpid(),
            "peak_memory_bytes": usage.ru_maxrss * 1024,
            "harness_seconds": self.harness_seconds,
            "minor_faults": usage.ru_minflt - self.minor_faults,
        }
