"""Send tensors by Ray Direct Transport: they stay with their sender, and only references pass through Ray.

If the driver can neither send nor receive by a transport, a proxy actor does it in its place and answers with 8 bytes.
"""

import time
import warnings
from dataclasses import replace
from functools import partial

import ray
import torch.distributed as dist

from dataflow.endpoints.tensors import DENSE, map_tensors
from dataflow.flows.flow import DRIVER
from dataflow.records.schema import AS_REQUESTED
from dataflow.transports.process_group import read_logged_paths
from dataflow.transports.store import call_tasks
from dataflow.workers.worker_group import Connection, WorkerGroup


def by_group(workers: WorkerGroup, backend: str) -> Connection:
    """Send contiguous tensors between the members of a collective group of all actors.

    For gloo, Ray lets torch open a TCPStore, which listens on all interfaces. On one machine, the group of torch is
    formed before by a file, and Ray takes it.
    """
    with warnings.catch_warnings():  # without a GPU, cupy warns that it finds no NCCL
        warnings.filterwarnings("ignore", r"\s*nccl library could not be loaded")
        from ray.experimental.collective import create_collective_group
    workers.start(codec=DENSE)
    start, actors, plan = time.perf_counter(), list(workers.actors.values()), workers.plan
    if backend == "gloo" and not plan.options.address:
        join = partial(dist.init_process_group, "gloo", f"file://{plan.run_folder}/rendezvous", world_size=len(actors))
        ray.get([a.__ray_call__.remote(lambda _, rank=rank: join(rank=rank)) for rank, a in enumerate(actors)])
    # An existing cluster may have groups of other runs.
    create_collective_group(actors, backend=backend, name=f"actors-{plan.run_folder.name}")
    return by_direct_transport(workers, backend.upper(), {"group creation": time.perf_counter() - start})


def by_cuda_ipc(workers: WorkerGroup) -> Connection:
    """Let readers map the sender's memory on the same GPU."""
    workers.start()
    return by_direct_transport(workers, "CUDA_IPC", {})


def by_nixl(workers: WorkerGroup) -> Connection:
    """Let readers fetch from memory that was registered once; otherwise Ray registers every message."""
    workers.start()
    start = time.perf_counter()
    workers.run_in_all(register_memory)
    connection = by_direct_transport(workers, "NIXL", {"agents, memory registration": time.perf_counter() - start})

    def read_data_paths():
        paths = ", ".join(["NIXL over UCX", *read_logged_paths(workers.plan.run_folder, "ucx")])
        return {"data_paths": dict.fromkeys(connection.data_paths, paths)} if "," in paths else {}

    return replace(connection, facts=read_data_paths)


def register_memory(endpoint):
    for outbox in endpoint.outboxes.values():
        for payload in outbox.buffers or outbox.pool:
            map_tensors(ray.experimental.register_nixl_memory, payload)


def by_direct_transport(workers: WorkerGroup, ray_name: str, setup_seconds: dict[str, float]) -> Connection:
    """Pass references to tensors from call to call. The tensors move by the transport that Ray calls `ray_name`."""
    flow, has_proxy = workers.sent_flow, workers.plan.transport.requirements.proxy_actor
    methods = {}
    for task in flow.tasks:
        method = workers.actors[task.actor].forward_step
        is_answer = has_proxy and task.name in flow.returns  # of the proxy actor, which is an ordinary result
        methods[task.name] = method if is_answer else method.options(tensor_transport=ray_name)

    def submit(query):
        return call_tasks(flow, methods, query if has_proxy else ray.put(query, _tensor_transport=ray_name))

    requested = "" if ray_name == "GLOO" else AS_REQUESTED  # the loopback interface counts the bytes of gloo
    paths = {str(edge): f"Ray Direct Transport, {ray_name}{requested}" for edge in flow.edges}
    if has_proxy:
        of_driver = (*flow.edges_from(DRIVER), *flow.edges_to(DRIVER))
        paths |= {str(edge): "argument or answer of a call" for edge in of_driver}
    return Connection(submit, ray.get, paths, setup_seconds)


TRANSPORTS = {
    "gloo": partial(by_group, backend="gloo"),
    "nccl": partial(by_group, backend="nccl"),
    "cuda-ipc": by_cuda_ipc,
    "nixl": by_nixl,
}
