# SPDX-License-Identifier: Apache-2.0
"""Send messages by torch.distributed between plain processes, without Ray: over sockets by gloo, or by NCCL."""

import os
import re
import time
from datetime import timedelta
from itertools import chain, cycle, zip_longest

import torch
import torch.distributed as dist

from dataflow.endpoints import tensors
from dataflow.endpoints.actor import Actor, Endpoint
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER
from dataflow.records.machine import loaded_nccl_version
from dataflow.workers.worker_group import Connection, WorkerGroup

# NCCL from 2.30 on, for several ranks on one GPU.
SHARED_GPU = {
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "NCCL_MAX_CTAS": "4",
    "NCCL_NVLS_ENABLE": "0",
}


class Rank(Endpoint):
    """One rank of a process group: the driver is 0, the actors follow in the flow's order."""

    def __init__(self, plan, name, rendezvous):
        if plan.device == "cuda":
            torch.cuda.set_device(plan.gpu_of(name))
        super().__init__(plan, name)
        self.rendezvous = rendezvous

    def find_device(self, plan, name):
        """Return the GPU by its number. The thread that answers calls is on the first one, whatever this one sets."""
        return torch.device(plan.gpu_of(name))

    def join(self):
        """Wait for all ranks to form the group, and send a first message over each edge, so that NCCL logs its paths.

        If a rank does not come in time (--timeout and 30 s), torch raises its own error.
        """
        plan = self.plan
        flow = self.sent_flow
        names = self.plan.worker_names
        rank = names.index(self.name)
        tasks = [DRIVER]
        tasks += [task.name for task in flow.tasks]
        self.ranks = {task: names.index(flow.actor(task)) for task in tasks}
        if plan.device == "cuda":
            one_gpu = plan.transport.name == "nccl-one-gpu"
            # torch itself knows only the version that it was built with.
            version = loaded_nccl_version() or torch.cuda.nccl.version()
            os.environ.update(nccl_settings(plan.run_folder, version, one_gpu, rank))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if plan.device == "cuda" else "gloo",
            self.rendezvous,
            rank=rank,
            world_size=len(names),
            timeout=timedelta(seconds=plan.options.timeout + 30),
        )
        # Two messages between the same ranks may be read in another order than they were sent. NCCL has no tags.
        self.tags = {edge: tag for tag, edge in enumerate(flow.edges)}
        self.receive_buffers = {}  # edge -> an iterator of lists of tensors to receive into
        self.receives_begun = {}  # task -> what `receive_message` returned for each edge
        # `torch broadcast`: sending task -> the group of its actor and of its readers.
        self.groups = self.form_groups() if plan.transport.name == "broadcast" else {}
        self.send_first_messages()

    def form_groups(self):
        """Return a group per task that has readers. All ranks form all groups."""
        members = {}
        for task, rank in self.ranks.items():
            edges = self.sent_flow.edges_from(task)
            readers = {self.ranks[edge.reader] for edge in edges}
            if readers:
                members[task] = (rank, *sorted(readers))
        # In an order that all ranks have.
        different = dict.fromkeys(members.values())
        groups = {ranks: dist.new_group(ranks) for ranks in different}
        return {task: groups[ranks] for task, ranks in members.items()}

    def send_first_messages(self):
        """Send a number over each edge of this worker or wait for it, and make the buffers of what it reads."""
        plan = self.plan
        flow = self.sent_flow
        # Parameters are served until the next ones have arrived.
        count = 2 if plan.task_flow.has_parameters else plan.options.in_flight
        for edge in flow.edges:
            message = edge.message
            device = self.device_of(edge)
            if self.name == flow.actor(edge.source):
                dist.send(torch.ones(1, device=device), self.ranks[edge.reader])
            elif self.name == flow.actor(edge.reader):
                dist.recv(torch.ones(1, device=device), self.ranks[edge.source])
                if plan.options.keep:
                    self.receive_buffers[edge] = new_buffers(message, device)
                else:
                    self.receive_buffers[edge] = reused_buffers(message, device, count)

    def is_announced(self, edge):
        """Return whether gloo announces an edge's messages inside the clock: those of NCCL.

        A posted receive of NCCL occupies the stream of its GPU until the sender sends. Without the announcement, an
        actor would post it while it still has to verify the last messages, and the next iteration would never begin.
        """
        return torch.device(self.device_of(edge)).type != "cpu"

    def device_of(self, edge):
        """Return where an edge's bytes arrive: on the GPU between actors, in host memory to and from the driver."""
        return "cpu" if DRIVER in (edge.source, edge.reader) else self.device

    def send(self, task, payload):
        """Begin to send a payload to its readers, tensor by tensor, and return the requests to wait for.

        There are none if no other worker reads it.
        """
        if task in self.groups:
            arguments = {"src": self.ranks[task], "group": self.groups[task], "async_op": True}
            listed = tensors.to_tensor_list(payload, self.sent_flow.message(task))
            return [dist.broadcast(tensor.contiguous(), **arguments) for tensor in listed]
        requests = []
        for edge in self.sent_flow.edges_from(task):
            device = self.device_of(edge)
            reader = self.ranks[edge.reader]
            tag = self.tags[edge]
            if self.is_announced(edge):
                requests.append(dist.isend(torch.zeros(1), reader, tag=tag))
            for tensor in tensors.to_tensor_list(payload, edge.message):
                sent = tensor.to(device).contiguous()
                requests.append(dist.isend(sent, reader, tag=tag))
        return requests

    def receive_message(self, edge, receive):
        """Return the tensors that an edge receives into, and what `receive` returns for each of them."""
        buffers = next(self.receive_buffers[edge])
        rank = self.ranks[edge.source]
        tag = self.tags[edge]
        if self.groups:
            group = self.groups[edge.source]
            return buffers, [dist.broadcast(tensor, rank, group) for tensor in buffers]
        if self.is_announced(edge):
            dist.recv(torch.zeros(1), rank, tag=tag)
        return buffers, [receive(tensor, rank, tag=tag) for tensor in buffers]

    def receive_all(self, task):
        """Return the payloads of a task's edges."""
        edges = self.sent_flow.edges_to(task)
        begun = self.receives_begun.pop(task, [])
        for request in chain.from_iterable(requests for _, requests in begun):
            request.wait()
        received = begun or [self.receive_message(edge, dist.recv) for edge in edges]
        payloads = []
        for edge, (buffers, _) in zip(edges, received, strict=True):
            on_device = [tensor.to(self.device) for tensor in buffers]
            payloads.append(tensors.from_tensor_list(on_device, edge.message))
        return payloads


class RankActor(Rank, Actor):
    def run(self):
        """Join the group, and do the tasks of each iteration in their order, until this process is ended."""
        self.join()
        names = list(self.tasks)
        # NCCL's messages to and from a GPU wait for each other, and broadcasts are not matched by a tag.
        receives_ahead = self.plan.device == "cpu" and not self.groups
        while True:
            requests = []
            for task, following in zip_longest(names, names[1:]):
                inputs = self.receive_all(task)
                if following and receives_ahead:  # gloo receives while this actor works
                    edges = self.sent_flow.edges_to(following)
                    self.receives_begun[following] = [
                        self.receive_message(edge, dist.irecv) for edge in edges
                    ]
                requests += self.send(task, self.forward_step(task, *inputs))
            for request in requests:
                request.wait()


def reused_buffers(message, device, count):
    """Return so many lists of tensors in turn, without end: a message overwrites the one that came `count` before."""
    payloads = [tensors.like(message, device) for _ in range(count)]
    return cycle([tensors.to_tensor_list(payload, message) for payload in payloads])


def new_buffers(message, device):
    """Yield lists of tensors in new memory, without end. Nothing here holds them, so their reader decides how long."""
    while True:
        yield tensors.to_tensor_list(tensors.unwritten(message, device), message)


def nccl_settings(folder, version, one_gpu, rank):
    """Return the environment that NCCL needs before its first communicator: to log its connections into the folder.

    NCCL rejects two ranks on one GPU ("Duplicate GPU detected"). From 2.30 on, a setting allows it. Before, another
    host name for each rank passes the check, but then the bytes travel over sockets, and the log says so.
    """
    # NCCL inserts host and process into the name of the file.
    log = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{folder}/nccl.%h.%p.log"}
    if not one_gpu:
        return log
    if version >= (2, 30):
        return log | SHARED_GPU
    return log | {"NCCL_HOSTID": f"rank-{rank}", "NCCL_SOCKET_IFNAME": "lo"}


LOGGED_PATHS = {  # library -> how its log names a data path
    "nccl": r" via ([A-Z][\w/]*)",  # as in "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    # UCX_PROTO_INFO logs a table for each kind of operation when the first one begins. One-sided reads carry payloads.
    "ucx": r"memory read by ucp_get(?:.*\n){4}.*\.inf \|[^|]*\| (\S+)",
}


def read_logged_paths(folder, library):
    """Return the data paths, such as P2P/CUMEM or cma/memory, that the logs of all processes in a folder name."""
    logs = sorted(folder.glob(f"{library}.*.log"))
    text = "\n".join(log.read_text(errors="replace") for log in logs)
    paths = re.findall(LOGGED_PATHS[library], text)
    return sorted(set(paths))


def by_process_group(workers: WorkerGroup) -> Connection:
    """Send by torch.distributed: over sockets by gloo, between GPUs by NCCL.

    The driver waits until all actors have joined the group. Raise RunFailed if NCCL's log names no connection, and
    errors as `WorkerGroup.start`, if an actor cannot be constructed.
    """
    start = time.perf_counter()
    workers.start(RankActor, Rank, workers.rendezvous())
    driver = workers.driver
    driver.join()
    nccl_paths = read_logged_paths(workers.plan.run_folder, library="nccl")
    if workers.plan.device == "cuda" and not nccl_paths:
        raise RunFailed("NCCL's log names no connection between the actors")

    def collect(requests):
        """Return the results of an iteration, after its query has arrived."""
        results = driver.receive_all(DRIVER)
        for request in requests:
            request.wait()
        return results

    parts = ["torch.distributed", dist.get_backend_config(), *nccl_paths]
    data_path = ", ".join(parts)
    return Connection(
        submit=lambda query: driver.send(DRIVER, query),
        collect=collect,
        data_paths={str(edge): data_path for edge in workers.sent_flow.edges},
        setup_seconds={"processes, group creation": time.perf_counter() - start},
    )


TRANSPORTS = dict.fromkeys(("gloo", "broadcast", "nccl-one-gpu", "nccl"), by_process_group)
