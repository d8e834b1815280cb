"""Define what the driver and the actors do with a message before it is sent and after it arrived. Scripts send it."""

import gc
import os
import resource
import runpy
import time
from collections import ChainMap, Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from dataflow.endpoints import tensors
from dataflow.endpoints.inbox import Inbox, Views
from dataflow.endpoints.payload import Digests, Memory, Outbox
from dataflow.endpoints.progress_table import ProgressTable
from dataflow.endpoints.tensors import Payload
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER, Edge, Flow, Task
from dataflow.flows.message import OFFSETS, VALUES
from dataflow.plan.plan import Plan
from dataflow.study import load
from dataflow.trace import spans

FAULTS = Path(__file__).parents[2] / "tests" / "fault_injection.py"


class Endpoint:
    """The outboxes and inboxes of one worker: one of each per task, or the driver's."""

    def __init__(self, plan: Plan, name: str) -> None:
        options, flow = plan.options, plan.task_flow
        self.plan, self.name, self.task_flow, self.sent_flow = plan, name, flow, plan.sent_flow
        self.device = torch.device(plan.device)
        self.packed, self.jagged = options.message == "packed", options.message == "jagged"
        self.tasks: dict[str, Task] = {task.name: task for task in flow.tasks if task.actor == name}
        self.outboxes: dict[str, Outbox] = {}
        self.inboxes: dict[str, Inbox] = {}
        self.copies: dict[
            str, Iterator[list[Payload]]
        ] = {}  # --copy-out: memory that each task copies its inputs into
        for task in self.tasks if name != DRIVER else [DRIVER]:
            memory, edges = self.memory(task), flow.edges_to(task)
            arguments = (
                task,
                flow.message(task),
                flow.slots(options.in_flight),
                self.device,
                self.packed,
                memory,
            )
            self.outboxes[task] = Outbox(*arguments, options.copy_in)
            self.inboxes[task] = Inbox(edges, plan.device, options.in_flight)
            if options.copy_out:
                copies = [
                    [tensors.like(e.message, self.device) for e in edges]
                    for _ in range(options.in_flight)
                ]
                self.copies[task] = cycle(copies)
        self.digests: Digests = {}
        self.minor_faults, self.faults_before = 0, 0
        self.progress = ProgressTable(
            plan.run_folder, plan.worker_names, plan.total_iterations, name
        )
        self.parts = [load(study, part)(self) for study, part in plan.parts.items()]
        if options.trace:
            spans.install(self)
        if options.inject:  # a fault, for tests
            runpy.run_path(str(FAULTS))["install"](self, options.inject)

    def memory(self, task: str) -> Memory | None:
        """Return where the task's payloads lie; None: anywhere. Transports that share memory override it."""
        return None

    def payload_digests(self) -> Digests:
        return {task: outbox.digests for task, outbox in self.outboxes.items()}

    def learn_digests(self, digests: Digests) -> None:
        self.digests = digests

    def make_payload(self, number: int, task: str = DRIVER) -> Payload:
        """Return a task's payload with this sequence number. All workers do this inside the timed section."""
        return self.outboxes[task].make(number)

    def receive(self, inputs: Sequence[Payload], task: str = DRIVER) -> int:
        """Hold a task's inputs, and return their sequence number. On a GPU, this waits for them."""
        if self.packed:
            inputs = self.unpack(inputs, task)
        for part in self.parts:
            inputs = part.received(task, inputs)
        if self.jagged or task in self.copies:
            tensors.check_inputs(inputs, self.task_flow.edges_to(task))
        if self.jagged:
            self.split_samples(inputs, task)
        if task in self.copies:
            inputs = self.copy_out(inputs, task)
        number = self.inboxes[task].take(inputs)
        self.progress.received(number)
        return number

    def unpack(self, inputs: Sequence[Any], task: str) -> list[Payload]:
        """--message packed: return the fields of each buffer as views."""
        tensors.check_inputs(inputs, self.sent_flow.edges_to(task))
        payloads = []
        for edge, buffer in zip(self.inboxes[task].edges, inputs, strict=True):
            if buffer.nbytes != edge.message.packed_bytes:
                raise RunFailed(
                    f"expected {edge.message.packed_bytes} packed bytes for {edge}; got {buffer.nbytes}"
                )
            payloads.append(tensors.unpack(buffer, edge.message))
        return payloads

    def split_samples(self, inputs: Sequence[Payload], task: str) -> None:
        """--message jagged: make a view of each sample, as a reader that needs them one by one does."""
        for edge, payload in zip(self.inboxes[task].edges, inputs, strict=True):
            for name in edge.message.jagged_names:
                payload[name + VALUES].split(payload[name + OFFSETS].diff().tolist())

    def copy_out(self, inputs: Sequence[Payload], task: str) -> list[Payload]:
        """--copy-out: return copies of the inputs, in memory that was used `in_flight` messages ago."""
        return [
            tensors.copy(view, into)
            for view, into in zip(inputs, next(self.copies[task]), strict=True)
        ]

    def end_group(self, number: int) -> dict[str, Any]:
        """Change the parameters that were sent, right after all acknowledgements; return what the parts measured."""
        self.minor_faults += spans.count_faults() - self.faults_before
        for outbox in self.outboxes.values():
            # Readers of the sender's own memory still need it: its next version has another place.
            if outbox.message.is_parameters and (outbox.is_in_place or not self.plan.expects_views):
                outbox.change_parameters(number)
        measured = {part.name: part.end_group(number) for part in self.parts}
        self.faults_before = spans.count_faults()  # this work is not a part of the iterations
        return measured

    def verify(self, first: int, last: int) -> tuple[dict[str, int], dict[str, bool | None]]:
        """Verify the messages `first` to `last`. Return the wrong bytes by name, and `Views.by_edge`."""
        self.minor_faults += spans.count_faults() - self.faults_before
        if first == 1:
            # To search all objects of torch and Ray for garbage would add 0.2 s to one of the iterations.
            gc.freeze()
        wrong, views = Counter[str](), Views()
        for inbox in self.inboxes.values():
            inbox.verify(first, last, self.digests, wrong, views)
        for part in self.parts:
            wrong.update(part.verify(last))
        self.faults_before = spans.count_faults()  # those of the verification do not count
        return {name: count for name, count in wrong.items() if count}, views.by_edge

    def verify_unsent(self) -> dict[str, int]:
        """Return the wrong bytes by edge that the verification finds in messages that nobody has sent."""
        return dict(
            ChainMap(*(inbox.verify_unsent(self.digests) for inbox in self.inboxes.values()))
        )

    def release(self) -> None:
        """Drop the last inputs. Views among them keep a channel's buffer, an object or a ring's slot in use."""
        for inbox in self.inboxes.values():
            inbox.held.clear()

    def reset_costs(self) -> None:
        """Begin to count the costs of the timed iterations."""
        self.minor_faults, self.faults_before = 0, spans.count_faults()

    def spans(self) -> list[tuple[int, str, float, float, int]]:
        return spans.recorded

    def costs(self) -> dict[str, Any]:
        """Return what this worker's process has used."""
        return {
            "pid": os.getpid(),
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "minor_faults": self.minor_faults,
        }


class Actor(Endpoint):
    """An actor without its computation. A codec converts its inputs and payloads, if there is one."""

    def __init__(self, plan: Plan, name: str, codec: Any = None) -> None:
        torch.set_num_threads(plan.options.threads)
        super().__init__(plan, name)
        self.codec = codec
        # A task that reads only messages of this actor's own tasks gets its number from the last of those tasks.
        local = [task for task in self.tasks.values() if not self.inboxes[task.name].edges]
        self.followers = {
            name: [task.name for task in local if task.reads[-1] == name] for name in self.tasks
        }
        self.local_numbers: dict[str, deque[int]] = {task.name: deque() for task in local}
        self.model_seconds = plan.options.model_times.get(name)

    def forward_step(self, task: str, *inputs: Any) -> Any:
        """Receive a task's inputs, in the order of the flow's edges, and return the data to send."""
        self.begin = time.perf_counter()  # its messages have arrived
        if self.codec:
            inputs = self.codec.decode_all(inputs, self.sent_flow.edges_to(task), self.device)
        number = (
            self.receive(inputs, task)
            if self.inboxes[task].edges
            else self.local_numbers[task].popleft()
        )
        for follower in self.followers[task]:
            self.local_numbers[follower].append(number)
        if self.model_seconds is not None:
            self.compute(self.model_seconds)
        for part in self.parts:
            part.run(task, number)
        payload = self.make_payload(number, task)
        data = self.codec.encode(payload) if self.codec else payload
        for part in self.parts:
            part.made(task)
        return data

    def compute(self, seconds: float) -> None:
        """Wait as if a GPU computed, without using the CPU."""
        time.sleep(seconds)


def pass_messages(
    flow: Flow,
    actors: Mapping[str, Actor],
    carry: Callable[[Payload, Edge], Payload],
    query: Payload,
) -> Any:
    """Run all tasks of an iteration in this process, one after the other, and return the results of the driver.

    `carry` is called for each edge with the message as it was sent, and returns it as its reader gets it.
    """
    sent = {DRIVER: query}
    for task in flow.tasks:
        inputs = [carry(sent[edge.source], edge) for edge in flow.edges_to(task.name)]
        sent[task.name] = actors[task.actor].forward_step(task.name, *inputs)
    return [carry(sent[edge.source], edge) for edge in flow.edges_to(DRIVER)]
