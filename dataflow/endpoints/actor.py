# SPDX-License-Identifier: Apache-2.0
"""Define what the driver and the actors do with a message before it is sent and after it arrived. Scripts send it."""

import gc
import os
import resource
import runpy
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from dataflow.endpoints import tensors
from dataflow.endpoints.inbox import Inbox, Views
from dataflow.endpoints.payload import Digests, Memory, Outbox, PayloadForm
from dataflow.endpoints.progress_table import ProgressTable
from dataflow.endpoints.stacks import write_stacks_on_signal
from dataflow.endpoints.tensors import Payload
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER, Edge, Flow, Task
from dataflow.flows.message import OFFSETS, VALUES
from dataflow.plan.plan import Plan
from dataflow.study import load
from dataflow.trace import spans

PROJECT = Path(__file__).parents[2]
FAULTS = PROJECT / "tests" / "fault_injection.py"  # --inject breaks something, for tests


class Endpoint:
    """The outboxes and inboxes of one worker: one of each per task, or the driver's.

    In a run, an actor receives the inputs of a task, and then makes its payload. The driver makes a payload first.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        """Make all payloads and inboxes. --trace then wraps methods, and --inject breaks something, for tests."""
        options = plan.options
        self.plan = plan
        self.name = name
        self.task_flow = plan.task_flow
        self.sent_flow = plan.sent_flow
        self.device = self.find_device(plan, name)
        self.packed = options.message == "packed"
        self.jagged = options.message == "jagged"
        self.tasks: dict[str, Task] = {}  # the driver has none
        for task in plan.task_flow.tasks:
            if task.actor == name:
                self.tasks[task.name] = task
        self.outboxes: dict[str, Outbox] = {}
        self.inboxes: dict[str, Inbox] = {}
        # --copy-out: memory that each task copies its inputs into, without end.
        self.copies: dict[str, Iterator[list[Payload]]] = {}
        if name == DRIVER:
            self._add_sender(DRIVER)
        for sender in self.tasks:
            self._add_sender(sender)
        self.digests: Digests = {}
        self.minor_faults = 0
        self.faults_before = 0
        self.progress = ProgressTable(
            plan.run_folder, plan.worker_names, plan.total_iterations, worker=name
        )
        write_stacks_on_signal(plan.run_folder)
        self.parts = [load(study, part)(self) for study, part in plan.parts.items()]
        if options.trace:
            spans.install(self)
        if options.inject:
            faults = runpy.run_path(str(FAULTS))
            faults["install"](self, options.inject)

    def find_device(self, plan: Plan, name: str) -> torch.device:
        """Return where this worker's tensors lie. Ray shows an actor only its own GPU; the driver's is the first one.

        Processes that see all GPUs override it.
        """
        return torch.device(plan.device)

    def _add_sender(self, task: str) -> None:
        """Make the outbox and the inbox of a task or the driver, and with --copy-out the memory of its inputs."""
        flow = self.task_flow
        options = self.plan.options
        in_flight = options.in_flight
        edges = flow.edges_to(task)
        self.inboxes[task] = Inbox(edges, self.device, keep=in_flight)
        self.outboxes[task] = Outbox(
            task,
            flow.message(task),
            slots=flow.slots(in_flight),
            device=self.device,
            form=PayloadForm(
                is_packed=self.packed, memory=self.memory(task), copy_in=options.copy_in
            ),
        )
        if not options.copy_out:
            return
        if options.keep:
            self.copies[task] = new_inputs(edges, self.device)
        else:
            self.copies[task] = reused_inputs(edges, self.device, count=in_flight)

    def memory(self, task: str) -> Memory | None:
        """Return where the task's payloads lie; None: anywhere. It is called once per task.

        Transports that share memory override it, and create that memory.
        """
        return None

    def payload_digests(self) -> Digests:
        """Return the hashes of what this worker sends."""
        return {task: outbox.digests for task, outbox in self.outboxes.items()}

    def learn_digests(self, digests: Digests) -> None:
        """Take the hashes of what all workers send, for the verification."""
        self.digests = digests

    def make_payload(self, number: int, task: str = DRIVER) -> Payload:
        """Return a task's payload with this sequence number. All workers do this inside the timed section."""
        return self.outboxes[task].make(number)

    def receive(self, inputs: Sequence[Payload], task: str = DRIVER) -> int:
        """Hold a task's inputs, and return the sequence number that they should have. On a GPU, this waits for them.

        Raise RunFailed if they are not one payload per edge, with the fields of its message. `verify` compares their
        numbers and bytes later.
        """
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
        """--message packed: return the fields of each buffer as views; raise RunFailed for a buffer of another size."""
        tensors.check_inputs(inputs, self.sent_flow.edges_to(task))
        edges = self.inboxes[task].edges
        payloads = []
        for edge, buffer in zip(edges, inputs, strict=True):
            expected = edge.message.packed_bytes
            if buffer.nbytes != expected:
                raise RunFailed(f"expected {expected} packed bytes for {edge}; got {buffer.nbytes}")
            payloads.append(tensors.unpack(buffer, edge.message))
        return payloads

    def split_samples(self, inputs: Sequence[Payload], task: str) -> None:
        """--message jagged: make a view of each sample, as a reader that needs them one by one does."""
        edges = self.inboxes[task].edges
        for edge, payload in zip(edges, inputs, strict=True):
            for name in edge.message.jagged_names:
                values = payload[name + VALUES]
                lengths = payload[name + OFFSETS].diff()
                values.split(lengths.tolist())

    def copy_out(self, inputs: Sequence[Payload], task: str) -> list[Payload]:
        """--copy-out: return copies of the inputs, in memory that was used `in_flight` messages ago or is new."""
        memory = next(self.copies[task])
        return [tensors.copy(view, into) for view, into in zip(inputs, memory, strict=True)]

    def end_group(self, number: int) -> dict[str, Any]:
        """Change the parameters that were sent, right after all acknowledgements; return what the parts measured."""
        self._add_faults()
        for outbox in self.outboxes.values():
            if not outbox.message.is_parameters:
                continue
            # Readers of the sender's own memory still need it: its next version has another place.
            if outbox.is_in_place or not self.plan.expects_views:
                outbox.change_parameters(number)
        measured = {part.name: part.end_group(number) for part in self.parts}
        self.faults_before = spans.count_faults()  # this work is not a part of the iterations
        return measured

    def verify(self, first: int, last: int) -> tuple[dict[str, int], dict[str, bool | None]]:
        """Verify the messages `first` to `last`. Return the wrong bytes by name, without those that have none.

        Also return `Views.by_edge`: whether the tensors of each edge lie in shared memory; None if only some do.
        """
        self._add_faults()
        if first == 1 and not self.plan.options.ray_defaults:
            # To search all objects of torch and Ray for garbage would add 0.2 s to one of the iterations.
            gc.freeze()
        wrong = Counter[str]()
        views = Views()
        for inbox in self.inboxes.values():
            inbox.verify(first, last, self.digests, wrong, views)
        for part in self.parts:
            wrong.update(part.verify(last))
        self.faults_before = spans.count_faults()  # those of the verification do not count
        found = {name: count for name, count in wrong.items() if count}
        return found, views.by_edge

    def try_on_unsent_memory(self) -> dict[str, int]:
        """Try the verification on memory that nobody has written, and return the wrong bytes that it finds, by edge."""
        wrong: dict[str, int] = {}
        for inbox in self.inboxes.values():
            wrong |= inbox.try_on_unsent_memory(self.digests)
        return wrong

    def release(self) -> None:
        """Drop the last inputs. Views among them keep a channel's buffer, an object or a ring's slot in use."""
        for inbox in self.inboxes.values():
            inbox.held.clear()

    def _add_faults(self) -> None:
        """Count the page faults since the last verification or change of parameters: those of iterations."""
        self.minor_faults += spans.count_faults() - self.faults_before

    def reset_costs(self) -> None:
        """Begin to count the costs of the timed iterations."""
        self.minor_faults = 0
        self.faults_before = spans.count_faults()

    def spans(self) -> list[tuple[int, str, float, float, int]]:
        """Return what --trace has recorded in this process."""
        return spans.recorded

    def costs(self) -> dict[str, Any]:
        """Return what this worker's process has used."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "pid": os.getpid(),
            "peak_memory_bytes": usage.ru_maxrss * 1024,
            "minor_faults": self.minor_faults,
        }


def reused_inputs(edges: Sequence[Edge], device: Any, count: int) -> Iterator[list[Payload]]:
    """Return so many payloads of each edge in turn, without end. Their pages are in memory already."""
    memory = []
    for _ in range(count):
        payloads = [tensors.like(edge.message, device) for edge in edges]
        memory.append(payloads)
    return cycle(memory)


def new_inputs(edges: Sequence[Edge], device: Any) -> Iterator[list[Payload]]:
    """Yield payloads of each edge in new memory, without end. Nothing here holds them, so a reader may keep them."""
    while True:
        yield [tensors.unwritten(edge.message, device) for edge in edges]


class Actor(Endpoint):
    """An actor without its computation. A codec converts its inputs and payloads, if there is one."""

    def __init__(self, plan: Plan, name: str, codec: Any = None) -> None:
        torch.set_num_threads(plan.options.threads)
        super().__init__(plan, name)
        self.codec = codec
        # A task that reads only messages of this actor's own tasks gets its number from the last of those tasks.
        self.followers: dict[str, list[str]] = {task: [] for task in self.tasks}
        # The numbers of the calls that each follower has yet to do.
        self.local_numbers: dict[str, deque[int]] = {}
        for task_name, task in self.tasks.items():
            if not self.inboxes[task_name].edges:
                leader = task.reads[-1]
                self.followers[leader].append(task_name)
                self.local_numbers[task_name] = deque()
        self.model_seconds = plan.options.model_times.get(name)

    def forward_step(self, task: str, *inputs: Any) -> Any:
        """Receive a task's inputs, in the order of the flow's edges, and return the data to send.

        In between, sleep for the time of --model-seconds, and do the work of studies. Raise RunFailed if the inputs
        are not those of the edges; their bytes are verified later.
        """
        self.begin = time.perf_counter()  # its messages have arrived
        if self.codec:
            edges = self.sent_flow.edges_to(task)
            inputs = self.codec.decode_all(inputs, edges, self.device)
        number = self._take(inputs, task)
        for follower in self.followers[task]:
            self.local_numbers[follower].append(number)
        if self.model_seconds is not None:
            self.compute(self.model_seconds)
        for part in self.parts:
            part.run(task, number)
        data = self.make_payload(number, task)
        if self.codec:
            data = self.codec.encode(data)
        for part in self.parts:
            part.made(task)
        return data

    def _take(self, inputs: Sequence[Payload], task: str) -> int:
        """Return the number of this call: of the inputs that it receives, or of the task that it follows."""
        if self.inboxes[task].edges:
            return self.receive(inputs, task)
        return self.local_numbers[task].popleft()

    def compute(self, seconds: float) -> None:
        """Wait as if a GPU computed, without using the CPU."""
        time.sleep(seconds)


def pass_messages(
    flow: Flow,
    actors: Mapping[str, Actor],
    carry: Callable[[Payload, Edge], Payload],
    query: Payload,
) -> Any:
    """Run all tasks of an iteration in this process, one after the other, and return the messages to the driver.

    `carry` is called for each edge with the message as it was sent, and returns it as its reader gets it. Messages to
    the driver are not checked; an actor raises RunFailed for one that is not of its edge.
    """
    sent = {DRIVER: query}
    for task in flow.tasks:
        inputs = [carry(sent[edge.source], edge) for edge in flow.edges_to(task.name)]
        actor = actors[task.actor]
        sent[task.name] = actor.forward_step(task.name, *inputs)
    return [carry(sent[edge.source], edge) for edge in flow.edges_to(DRIVER)]
