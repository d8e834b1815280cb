"""How long does one iteration of the RLHF data flow take over Ray Direct Transport?

Actors call each other as usual, but tensors stay with their sender, and only references pass through Ray. If the
driver can neither send nor receive by a transport, a proxy actor does it in its place and answers with 8 bytes.

    python3 -m dataflow run "rdt gloo"
"""

import time
import warnings
from dataclasses import replace
from functools import partial

import ray
import torch.distributed as dist

from dataflow.endpoints.codecs import DENSE
from dataflow.endpoints.tensors import map_tensors
from dataflow.flows.flow import DRIVER
from dataflow.records.schema import AS_REQUESTED
from dataflow.transports.process_group import read_logged_paths
from dataflow.workers.worker_group import Connection, WorkerGroup

with warnings.catch_warnings():  # without a GPU, cupy warns that it finds no NCCL
    warnings.filterwarnings("ignore", r"\s*nccl library could not be loaded")
    from ray.experimental.collective import create_collective_group


def by_group(workers: WorkerGroup, backend: str) -> Connection:
    """Send contiguous tensors between the members of a collective group of all actors.

    For gloo, Ray lets torch open a TCPStore, which listens on all interfaces. On one machine, the group of torch is
    formed before by a file, and Ray takes it.
    """
    workers.start(codec=DENSE)
    start, actors, plan = time.perf_counter(), list(workers.actors.values()), workers.plan
    if backend == "gloo" and not plan.options.address:
        settings = {"init_method": f"file://{plan.run_folder}/rendezvous", "world_size": len(actors)}
        joins = [partial(join_torch_group, rank=rank, **settings) for rank in range(len(actors))]
        ray.get([actor.__ray_call__.remote(join) for actor, join in zip(actors, joins, strict=True)])
    # An existing cluster may have groups of other runs.
    create_collective_group(actors, backend=backend, name=f"actors-{plan.run_folder.name}")
    return by_calls(workers, backend.upper(), {"group creation": time.perf_counter() - start})


def join_torch_group(_, **settings):
    dist.init_process_group("gloo", **settings)


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

    requested = "" if ray_name == "GLOO" else AS_REQUESTED  # the loopback interface counts the bytes of gloo
    paths = {str(edge): f"Ray Direct Transport, {ray_name}{requested}" for edge in flow.edges}
    if has_proxy:
        of_driver = (*flow.edges_from(DRIVER), *flow.edges_to(DRIVER))
        paths |= {str(edge): "argument or answer of a call" for edge in of_driver}
    return Connection(submit, ray.get, paths, setup_seconds or {})


TRANSPORTS = {
    "gloo": partial(by_group, backend="gloo"),
    "nccl": partial(by_group, backend="nccl"),
    "cuda-ipc": by_cuda_ipc,
    "nixl": by_nixl,
}
