"""What does one trip of the RLHF data flow cost without Ray, between plain PyTorch processes?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The clock runs from the query in the driver's hand to the reward's output in the driver's hand. Payloads are
made before and checked after, while it stands. What Ray adds is the difference to these rows.

    python3 torch_simulate_chat_learn_data_flow.py
    python3 torch_simulate_chat_learn_data_flow.py --transport multiprocessing --iterations 20
"""

from common.run import supervisor

if __name__ == "__main__":
    supervisor.main(__file__, __doc__)  # ends here; a worker imports what follows

import multiprocessing
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing

from common.errors import RunFailed
from common.flow.flow import DRIVER
from common.payload import forms, leaves
from common.payload.model import Model
from common.payload.participant import Participant
from common.runtime.crew import Crew, Wiring
from common.transport import nccl_proof
from common.transport.process_group import GroupMember
from common.transport.ring_participant import RingParticipant, open_rings


class Rank(GroupMember):
    def send(self, task, payload):
        """Begin to send a payload to its readers, tensor by tensor; what must be waited for."""
        sent = []
        for edge in self.wire.edges_from(task):
            for tensor in forms.to_wire(payload, edge.message):
                sent.append(dist.isend(tensor.to(self.device_of(edge)).contiguous(), self.ranks[edge.reader]))
        return sent

    def receive_from(self, task):
        """The payloads of a task's edges, each in the memory that was used longest ago."""
        found = []
        for edge in self.wire.edges_to(task):
            wires = self.wires[str(edge)]
            wires.append(wires.pop(0))
            for tensor in wires[-1]:
                dist.recv(tensor, self.ranks[edge.source])
            found.append(forms.from_wire([tensor.to(self.device) for tensor in wires[-1]], edge.message))
        return found


class RankModel(Rank, Model):
    """Receives its inputs, sends its payload, for ever."""

    def __init__(self, plan, name):
        if plan.device == "cuda":
            torch.cuda.set_device(0 if plan.row.transport == "nccl-one-gpu" else plan.flow.actors.index(name))
        super().__init__(plan, name)

    def run(self):
        self.join()
        while True:
            for task in self.tasks:
                for work in self.send(task, self.forward_step(task, *self.receive_from(task))):
                    work.wait()


class Sharer(Participant):
    """Its pool lies in shared memory, as torch.multiprocessing wants it; sending it sends a file descriptor."""

    def __init__(self, plan, name, queues):
        super().__init__(plan, name)
        self.queues = queues

    def memory(self, task):
        count = self.flow.message(task).packed_bytes
        return lambda _: torch.ones(count, dtype=torch.uint8).share_memory_()


class SharerModel(Sharer, Model):
    """Takes its inputs from their queues, puts its payload into its own, for ever."""

    def run(self):
        while True:
            for task in self.tasks:
                # The inputs have no name here: it would keep them, and unmapping them would fall into the next trip.
                output = self.forward_step(task, *[self.queues[str(e)].get() for e in self.wire.edges_to(task)])
                for edge in self.wire.edges_from(task):
                    self.queues[str(edge)].put(output)


class Piped(RingParticipant):
    """Its payloads lie where their readers map them; only their numbers move, through pipes."""

    def __init__(self, plan, name, pipes):
        super().__init__(plan, name)
        self.pipes = pipes  # its files are open for as long as this is held
        reads = [DRIVER] if name == DRIVER else list(self.tasks)
        self.sources = {
            task: [(e.source, pipes[str(e)][0].fileno()) for e in self.wire.edges_to(task)] for task in reads
        }
        self.targets = {task: [pipes[str(e)][1].fileno() for e in self.wire.edges_from(task)] for task in reads}

    def hand_over(self, task):
        number = self.rings[task].newest.to_bytes(8, "little")
        for pipe in self.targets[task]:
            os.write(pipe, number)

    def take(self, task):
        """The payloads of a task's edges: views."""
        return self.open(task, [[who, int.from_bytes(os.read(pipe, 8), "little")] for who, pipe in self.sources[task]])


class PipedModel(Piped, Model):
    """Takes its inputs, passes on the number of its payload, for ever."""

    def run(self):
        while True:
            for task in self.tasks:
                self.forward_step(task, *self.take(task))
                if self.wire.edges_from(task):
                    self.hand_over(task)


def by_gloo(crew: Crew) -> Wiring:
    """torch.distributed send and recv over loopback, or between GPUs by NCCL."""
    begin = time.perf_counter()
    crew.start(RankModel, Rank)
    driver = crew.driver
    driver.join()
    found = nccl_proof.read_log(crew.plan.folder)
    if crew.plan.device == "cuda" and not found:
        raise RunFailed("NCCL's log names no connection between the roles")
    path = ", ".join(["torch.distributed", dist.get_backend_config(), *found])

    def collect(sent):
        results = driver.receive_from(DRIVER)
        for work in sent:
            work.wait()
        return results

    return Wiring(
        lambda query: driver.send(DRIVER, query), collect, {str(edge): path for edge in crew.flow.edges},
        {"processes, group creation": time.perf_counter() - begin},
    )  # fmt: skip


by_nccl = by_nccl_one_gpu = by_gloo


def by_multiprocessing(crew: Crew) -> Wiring:
    """torch.multiprocessing queues with tensors in shared memory."""
    spawn = torch.multiprocessing.get_context("spawn")
    queues = {str(edge): spawn.SimpleQueue() for edge in crew.flow.edges}
    crew.start(SharerModel, Sharer, queues)
    outgoing = [queues[str(edge)] for edge in crew.flow.edges_from(DRIVER)]
    incoming = [queues[str(edge)] for edge in crew.flow.edges_to(DRIVER)]

    def submit(query):
        for queue in outgoing:
            queue.put(query)

    path = f"SimpleQueue, {torch.multiprocessing.get_sharing_strategy()}"
    return Wiring(submit, lambda _: [queue.get() for queue in incoming], {str(edge): path for edge in crew.flow.edges})


def by_mapped(crew: Crew) -> Wiring:
    """Payloads stay where their producer wrote them; what moves is the cheapest that Python has, a word in a pipe."""
    pipes = {str(edge): multiprocessing.get_context("spawn").Pipe(duplex=False) for edge in crew.flow.edges}
    crew.start(PipedModel, Piped, pipes)
    open_rings(crew)
    driver, memory = crew.driver, "CUDA IPC" if crew.plan.device == "cuda" else "/dev/shm"
    path = {edge: f"mapped {memory}, number by pipe" for edge in pipes}
    return Wiring(lambda _: driver.hand_over(DRIVER), lambda _: driver.take(DRIVER), path)


def by_memcpy(crew: Crew) -> Wiring:
    """One process and one warm copy an edge: the ceiling itself, on the clock."""
    crew.start(Model)
    flow = crew.flow
    buffers = {edge: leaves.like(edge.message, crew.plan.device) for edge in flow.edges}

    def submit(query):
        emitted = {DRIVER: query}
        for task in flow.tasks:
            copies = [leaves.copy(emitted[edge.source], buffers[edge]) for edge in flow.edges_to(task.name)]
            emitted[task.name] = crew.actors[task.actor].forward_step(task.name, *copies)
        return [leaves.copy(emitted[edge.source], buffers[edge]) for edge in flow.edges_to(DRIVER)]

    return Wiring(submit, lambda results: results, {str(edge): "memcpy in one process" for edge in flow.edges})
