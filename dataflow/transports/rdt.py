"""How long does one iteration of the RLHF data flow take over Ray Direct Transport?

Actors call each other as usual, but tensors stay with their sender, and only references pass through Ray. If the
driver can neither send nor receive by a transport, a proxy actor does it in its place and answers with 8 bytes.

    python3 -m dataflow run "rdt mapped"
"""

import time
import warnings
from dataclasses import replace
from functools import partial
from itertools import cycle

import ray
import torch.distributed as dist

from dataflow.endpoints.actor import Actor
from dataflow.endpoints.codecs import DENSE
from dataflow.endpoints.tensors import like, map_tensors, to_tensor_list
from dataflow.flows.flow import DRIVER, Flow
from dataflow.records.schema import AS_REQUESTED
from dataflow.transports import rdt_ring
from dataflow.transports.process_group import read_logged_paths
from dataflow.transports.ring_endpoint import start_with_rings
from dataflow.workers.worker_group import Connection, WorkerGroup

with warnings.catch_warnings():  # without a GPU, cupy warns that it finds no NCCL
    warnings.filterwarnings("ignore", r"\s*nccl library could not be loaded")
    from ray.experimental.collective import create_collective_group
    from ray.util import collective


# Gloo's bytes are counted on the loopback interface, and mappings of shared memory can be seen in the readers.
VERIFIED = ("GLOO", rdt_ring.NAME)


def group_name(plan):
    return f"actors-{plan.run_folder.name}"  # an existing cluster may have groups of other runs


def make_group(workers: WorkerGroup, backend: str = "gloo") -> dict[str, float]:
    """Form a collective group of all actors, and return its `setup_seconds`.

    For gloo, Ray lets torch open a TCPStore, which listens on all interfaces. On one machine, the group of torch is
    formed before by a file, and Ray takes it.
    """
    start, actors, plan = time.perf_counter(), list(workers.actors.values()), workers.plan
    if backend == "gloo" and not plan.options.address:
        settings = {"init_method": f"file://{plan.run_folder}/rendezvous", "world_size": len(actors)}
        joins = [partial(join_torch_group, rank=rank, **settings) for rank in range(len(actors))]
        ray.get([actor.__ray_call__.remote(join) for actor, join in zip(actors, joins, strict=True)])
    create_collective_group(actors, backend=backend, name=group_name(plan))
    return {"group creation": time.perf_counter() - start}


def join_torch_group(_, **settings):
    dist.init_process_group("gloo", **settings)


def by_group(workers: WorkerGroup, backend: str) -> Connection:
    """Send contiguous tensors between the members of a collective group."""
    workers.start(codec=DENSE)
    return by_calls(workers, backend.upper(), make_group(workers, backend))


class BroadcastActor(Actor):
    def prepare(self):
        """Make the memory to receive into. Parameters are served until the next ones have arrived."""
        flow = self.sent_flow
        edges = [edge for edge in flow.edges_to_actor(self.name) if edge.source != DRIVER]
        copies = 2 if self.task_flow.has_parameters else 1
        self.buffers = {edge: cycle([like(edge.message, self.device) for _ in range(copies)]) for edge in edges}
        self.ranks = {task.name: flow.actors.index(task.actor) for task in flow.tasks}

    def run_task(self, task, query):
        inputs = [
            query if edge.source == DRIVER else self.broadcast(next(self.buffers[edge]), edge)
            for edge in self.sent_flow.edges_to(task)
        ]
        payload, edges = self.forward_step(task, *inputs), self.sent_flow.edges_from(task)
        if all(edge.reader == DRIVER for edge in edges):
            return payload
        self.broadcast(payload, edges[0])
        return None

    def broadcast(self, payload, edge):
        for tensor in to_tensor_list(payload, edge.message):
            collective.broadcast(tensor, self.ranks[edge.source], group_name(self.plan))
        return payload


def by_broadcast(workers: WorkerGroup, actor_class: type[Actor] = BroadcastActor) -> Connection:
    """Broadcast by ray.util.collective. With gloo, all groups of an actor have the same members, so there is one."""
    workers.start(actor_class, codec=DENSE)
    flow, actors, setup_seconds = workers.sent_flow, workers.actors, make_group(workers)
    ray.get([actor.prepare.remote() for actor in actors.values()])

    def submit(query):
        calls = {
            task.name: actors[task.actor].run_task.remote(task.name, query if DRIVER in task.reads else None)
            for task in flow.tasks
        }
        return [calls[source] for source in flow.returns]

    return Connection(submit, ray.get, data_paths(flow, "ray.util.collective, GLOO", True), setup_seconds)


def data_paths(flow: Flow, path: str, has_calls: bool) -> dict[str, str]:
    """Return the data path of each edge. If `has_calls`, those of the driver are the calls and their answers."""
    of_driver = (*flow.edges_from(DRIVER), *flow.edges_to(DRIVER)) if has_calls else ()
    return {str(edge): "argument or answer of a call" if edge in of_driver else path for edge in flow.edges}


def by_cuda_ipc(workers: WorkerGroup) -> Connection:
    """Let readers map the sender's memory on the same GPU."""
    workers.start()
    return by_calls(workers, "CUDA_IPC")


def by_nixl(workers: WorkerGroup) -> Connection:
    """Let readers fetch from memory that was registered once; otherwise Ray registers every message."""
    workers.start()
    start = time.perf_counter()
    workers.run_in_all(register_memory)
    connection = by_calls(workers, "NIXL", {"agents, memory registration": time.perf_counter() - start})

    def read_data_paths():
        paths = ", ".join(["NIXL over UCX", *read_logged_paths(workers.plan.run_folder, "ucx")])
        return {"data_paths": dict.fromkeys(connection.data_paths, paths)} if "," in paths else {}

    return replace(connection, facts=read_data_paths)


def register_memory(endpoint):
    for outbox in endpoint.outboxes.values():
        for payload in outbox.buffers or outbox.pool:
            map_tensors(ray.experimental.register_nixl_memory, payload)


def by_mapped(workers: WorkerGroup) -> Connection:
    """Let readers map the sender's shared memory, by a transport of this project at Ray's extension point."""
    rdt_ring.register()  # before any actor exists
    start_with_rings(workers, rdt_ring.RdtActor, rdt_ring.RdtEndpoint)
    workers.run_in_all(rdt_ring.register)
    return by_calls(workers, rdt_ring.NAME)


def by_calls(workers: WorkerGroup, ray_name: str, setup_seconds: dict[str, float] | None = None) -> Connection:
    """Call the tasks with references to tensors, which move by the transport that Ray calls `ray_name`."""
    flow, has_proxy = workers.sent_flow, workers.plan.transport.requirements.proxy_actor

    def submit(query):
        sent = {DRIVER: query if has_proxy else ray.put(query, _tensor_transport=ray_name)}
        for task in flow.tasks:
            call = workers.actors[task.actor].forward_step
            if not (has_proxy and task.name in flow.returns):  # the proxy actor's answer is an ordinary result
                call = call.options(tensor_transport=ray_name)
            inputs = (sent[edge.source] for edge in flow.edges_to(task.name))
            sent[task.name] = call.remote(task.name, *inputs)
        return [sent[source] for source in flow.returns]

    requested = "" if ray_name in VERIFIED else AS_REQUESTED
    paths = data_paths(flow, f"Ray Direct Transport, {ray_name}{requested}", has_proxy)
    return Connection(submit, ray.get, paths, setup_seconds or {})


TRANSPORTS = {
    "gloo": partial(by_group, backend="gloo"),
    "broadcast": by_broadcast,
    "nccl": partial(by_group, backend="nccl"),
    "cuda-ipc": by_cuda_ipc,
    "nixl": by_nixl,
    "mapped": by_mapped,
}
