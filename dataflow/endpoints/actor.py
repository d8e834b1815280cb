"""Define what the driver and the actors do with a message before it is sent and after it arrived. Scripts send it."""

import gc
import os
import resource
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch

from dataflow.endpoints import tensors
from dataflow.endpoints.inbox import Inbox, Views
from dataflow.endpoints.outbox import Memory, Outbox
from dataflow.endpoints.payload import Digests
from dataflow.endpoints.progress_table import ProgressTable
from dataflow.endpoints.tensors import Payload
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER, Edge, Flow, Task
from dataflow.flows.message import OFFSETS, VALUES
from dataflow.plan.plan import Plan
from dataflow.studies.chatlearn import samples
from dataflow.studies.weights.parameters import Parameters, WorkTimes
from dataflow.trace import recorder


class Endpoint:
    """The outboxes and inboxes of one worker: one of each per task, or the driver's."""

    def __init__(self, plan: Plan, name: str) -> None:
        options, flow = plan.options, plan.task_flow
        self.plan, self.name, self.task_flow, self.sent_flow = plan, name, flow, plan.sent_flow
        self.device, self.worker = torch.device(plan.device), plan.workers[name]
        self.packed, self.jagged = options.message == "packed", options.message == "jagged"
        self.tensordicts, self.deltas = None, None  # modules that only these forms of messages need
        if options.message == "tensordict":
            self.tensordicts = import_module("dataflow.studies.external_systems.tensordicts")
        if options.message == "indices":
            self.deltas = import_module("dataflow.studies.weights.deltas")
        self.tasks: dict[str, Task] = {task.name: task for task in flow.tasks_of(self.worker.actor)}
        self.outboxes: dict[str, Outbox] = {}
        self.inboxes: dict[str, Inbox] = {}
        self.copies: dict[str, list[list[Payload]]] = {}  # --copy-out: memory that each task copies its inputs into
        for task in self.tasks if name != DRIVER else [DRIVER]:
            memory, edges = self.memory(task), flow.edges_to(task)
            arguments = (task, flow.message(task), flow.slots(options.in_flight), self.device, self.packed, memory)
            convert = self.tensordicts.to_tensordict if self.tensordicts else None
            if self.deltas and flow.message(task).is_parameters:
                convert = self.deltas.Changes(task, flow.message(task), self.device)
            self.outboxes[task] = Outbox(*arguments, options.copy_in, convert)
            self.inboxes[task] = Inbox(edges, plan.device, options.in_flight, self.worker.receives)
            if options.copy_out:
                self.copies[task] = [[tensors.like(edge.message, self.device) for edge in edges]
                                     for _ in range(options.in_flight)]  # fmt: skip
        installing = [task for task in self.tasks if any(edge.message.is_parameters for edge in flow.edges_to(task))]
        messages = {task: [edge.message for edge in flow.edges_to(task)] for task in installing}
        self.parameters = Parameters(messages)  # what a receiver of parameters serves
        if self.deltas:
            for task in installing:
                self.copies[task] = [[self.deltas.initial_parameters(edge.source, edge.message, self.device)
                                      for edge in flow.edges_to(task)]]  # fmt: skip
        self.update = WorkTimes()
        self.digests: Digests = {}
        self.minor_faults, self.faults_before = 0, 0
        self.progress = ProgressTable.join(plan.run_folder, name, plan.worker_names, plan.total_iterations)
        if options.trace:
            recorder.install(self)
        if options.inject:
            import_module("dataflow.endpoints.fault_injection").install(self, options.inject)

    def memory(self, task: str) -> Memory | None:
        """Return where the task's payloads lie; None: anywhere. Transports that share memory override it."""
        return None

    def payload_digests(self) -> Digests:
        return {task: outbox.digests for task, outbox in self.outboxes.items()}

    def learn_digests(self, digests: Digests) -> None:
        self.digests = digests

    def make_payload(self, number: int, task: str = DRIVER) -> Payload:
        """Return a task's payload with this sequence number. All workers do this inside the timed section."""
        outbox = self.outboxes[task]
        slot = outbox.write_number(number)
        return self.pack(outbox, slot) if outbox.packs_on_send else outbox.payload(slot)

    def pack(self, outbox: Outbox, slot: int) -> Payload:
        """--message packed and tensordict, and --copy-in: return the payload after making it; a stage of --trace."""
        return outbox.payload(slot)

    def receive(self, inputs: Sequence[Payload], task: str = DRIVER) -> int:
        """Hold a task's inputs, and return their sequence number. On a GPU, this waits for them."""
        if self.packed or self.tensordicts:
            inputs = self.unpack(inputs, task)
        installs = task in self.parameters.tasks
        if self.jagged or self.copies or installs:
            tensors.check_inputs(inputs, (self.sent_flow if self.deltas else self.task_flow).edges_to(task))
        if self.jagged:
            self.split_samples(inputs, task)
        if installs:
            inputs = self.install(inputs, task)
        elif task in self.copies:
            inputs = self.copy_out(inputs, task)
        number = self.inboxes[task].take(inputs)
        self.progress.received(number)
        return number

    def unpack(self, inputs: Sequence[Any], task: str) -> list[Payload]:
        """--message packed and tensordict: return the fields of each buffer or TensorDict as views."""
        if self.tensordicts:
            pairs = zip(inputs, self.inboxes[task].edges, strict=True)
            return [self.tensordicts.from_tensordict(*pair) for pair in pairs]
        tensors.check_inputs(inputs, self.sent_flow.edges_to(task))
        payloads = []
        for edge, buffer in zip(self.inboxes[task].edges, inputs, strict=True):
            if buffer.nbytes != edge.message.packed_bytes:
                raise RunFailed(f"expected {edge.message.packed_bytes} packed bytes for {edge}; got {buffer.nbytes}")
            payloads.append(tensors.unpack(buffer, edge.message))
        return payloads

    def split_samples(self, inputs: Sequence[Payload], task: str) -> None:
        """--message jagged: make a view of each sample, as a reader that needs them one by one does."""
        for edge, payload in zip(self.inboxes[task].edges, inputs, strict=True):
            for name in edge.message.jagged_names:
                payload[name + VALUES].split(payload[name + OFFSETS].diff().tolist())

    def copy_out(self, inputs: Sequence[Payload], task: str) -> list[Payload]:
        """--copy-out: return copies of the inputs, in memory that was used `in_flight` messages ago.

        --message indices: write what has changed into that memory.
        """
        copies = self.copies[task]
        copies.append(copies.pop(0))
        if self.deltas and task in self.parameters.tasks:
            triples = zip(inputs, self.task_flow.edges_to(task), copies[-1], strict=True)
            return [self.deltas.apply_changes(received, edge.message, into) for received, edge, into in triples]
        return [tensors.copy(view, into) for view, into in zip(inputs, copies[-1], strict=True)]

    def install(self, inputs: Sequence[Payload], task: str) -> Sequence[Payload]:
        """Serve these parameters: the copies of --copy-out, for which the engine stops, or what arrived itself."""
        begin = time.perf_counter()
        if task in self.copies:
            self.parameters.stop_engine()
            inputs = self.copy_out(inputs, task)
        self.update.stall_seconds += self.parameters.install(task, inputs)
        self.update.install_seconds += time.perf_counter() - begin
        return inputs

    def end_update(self, number: int) -> WorkTimes:
        """Change the parameters that were sent, right after all acknowledgements; return the times of the update."""
        for outbox in self.outboxes.values():
            # Readers of the sender's own memory still need it: its next version has another place.
            if outbox.message.is_parameters and (outbox.is_in_place or not self.plan.expects_views):
                outbox.change_parameters(number)
        if self.parameters.failure:
            raise RunFailed(f"the thread that reads the parameters of {self.name} failed: {self.parameters.failure}")
        times, self.update = self.update, WorkTimes()
        times.reads, times.torn_reads = self.parameters.reads, self.parameters.torn_reads
        return times

    def verify(self, first: int, last: int) -> tuple[dict[str, int], dict[str, bool | None]]:
        """Verify the messages `first` to `last`. Return the wrong bytes by name, and `Views.by_edge`."""
        self.minor_faults += recorder.count_faults() - self.faults_before
        if first == 1:
            # To search all objects of torch and Ray for garbage would add 0.2 s to one of the iterations.
            gc.freeze()
        wrong, views = Counter[str](), Views()
        for inbox in self.inboxes.values():
            inbox.verify(first, last, self.digests, wrong, views)
        self.faults_before = recorder.count_faults()  # those of the verification do not count
        return {name: count for name, count in wrong.items() if count}, views.by_edge

    def release(self) -> None:
        """Drop the last inputs. Views among them keep a channel's buffer, an object or a ring's slot in use."""
        for inbox in self.inboxes.values():
            inbox.held.clear()

    def reset_costs(self) -> None:
        """Begin to count the costs of the timed iterations."""
        self.minor_faults, self.faults_before = 0, recorder.count_faults()

    def spans(self) -> list[tuple[int, str, float, float, int]]:
        return recorder.spans

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
        self.codec, self.sink_task = codec, plan.sink_task or ""
        # A task that reads only messages of this actor's own tasks gets its number from the last of those tasks.
        local = [task for task in self.tasks.values() if not self.inboxes[task.name].edges]
        self.followers = {name: [task.name for task in local if task.reads[-1] == name] for name in self.tasks}
        self.local_numbers: dict[str, deque[int]] = {task.name: deque() for task in local}
        self.micro_batches: dict[int, list[samples.Batch]] = {}
        self.model_times = plan.options.model_times
        self.schedule = [task for task in self.tasks.values() if task.seconds is not None]
        self.position, self.held_activations = 0, 0

    def forward_step(self, task: str, *inputs: Any) -> Any:
        """Receive a task's inputs, in the order of the flow's edges, and return the data to send."""
        begin = time.perf_counter()
        if self.codec:
            inputs = self.codec.decode_all(inputs, self.sent_flow.edges_to(task), self.device)
        number = self.receive(inputs, task) if self.inboxes[task].edges else self.local_numbers[task].popleft()
        for follower in self.followers[task]:
            self.local_numbers[follower].append(number)
        if self.worker.actor in self.model_times:
            self.compute(self.model_times[self.worker.actor])
        seconds = self.tasks[task].seconds
        if seconds is not None:
            self.run_scheduled(self.tasks[task], seconds)
        if self.tasks[task].collectives:
            self.run_collectives(number)
        if task == self.sink_task:
            self.take_samples(number, self.inboxes[task].held[-1][1])
        payload = self.make_payload(number, task)
        data = self.codec.encode(payload) if self.codec else payload
        self.update.add_task(begin, time.perf_counter())
        return data

    def run_collectives(self, number: int) -> None:
        """Run the collectives of a step. Actors of transports with collectives override it."""

    def run_scheduled(self, task: Task, seconds: float) -> None:
        """Compute for this time; raise RunFailed if another task of this actor must come first."""
        expected, update = self.schedule[self.position], self.update
        if task is not expected:
            raise RunFailed(f"{self.name} ran {task.name} before {expected.name}: this is another schedule")
        self.position = (self.position + 1) % len(self.schedule)
        self.held_activations += max(task.holds, 0)
        update.held_activations = max(update.held_activations, self.held_activations)
        begin = time.perf_counter()
        self.compute(seconds)
        update.compute_begin, update.compute_end = update.compute_begin or begin, time.perf_counter()
        update.compute_seconds += update.compute_end - begin
        self.held_activations += min(task.holds, 0)

    def compute(self, seconds: float) -> None:
        """Wait as if a GPU computed, without using the CPU."""
        time.sleep(seconds)

    def take_samples(self, number: int, messages: Sequence[Payload]) -> None:
        self.train(number, messages)  # ChatLearn's dataset keeps the samples for its trainers

    def train(self, number: int, messages: Sequence[Payload]) -> None:
        """--sink trainer: make micro-batches of an iteration's results, and keep them until they are verified."""
        self.micro_batches[number] = samples.make_micro_batches(messages, self.plan.options.train_micro_batch)
        if "trainer" in self.model_times:
            self.compute(self.model_times["trainer"])

    def verify(self, first: int, last: int) -> tuple[dict[str, int], dict[str, bool | None]]:
        wrong, views = super().verify(first, last)
        while self.micro_batches:
            number, batches = self.micro_batches.popitem()
            edges = self.inboxes[self.sink_task].edges
            for name, count in samples.verify_micro_batches(batches, edges, number, self.digests).items():
                wrong[name] = wrong.get(name, 0) + count
        return wrong, views


def pass_messages(
    flow: Flow, actors: Mapping[str, Actor], carry: Callable[[Payload, Edge], Payload], query: Payload
) -> Any:
    """Run all tasks of an iteration in this process, one after the other, and return the results of the driver.

    `carry` is called for each edge with the message as it was sent, and returns it as its reader gets it.
    """
    sent = {DRIVER: query}
    for task in flow.tasks:
        inputs = [carry(sent[edge.source], edge) for edge in flow.edges_to(task.name)]
        sent[task.name] = actors[task.actor].forward_step(task.name, *inputs)
    return [carry(sent[edge.source], edge) for edge in flow.edges_to(DRIVER)]
