"""Send messages as arguments and results of actor calls: over Ray's object store, or by Ray Direct Transport.

python3 -m dataflow run "store refs"

With Ray Direct Transport (rdt), tensors stay with their sender, and only references pass through Ray. If the driver can
neither send nor receive by a transport, a proxy actor does it in its place and answers with 8 bytes.
"""

import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import ray
import torch.distributed as dist

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.endpoints.tensors import ARRAYS, BYTES, DENSE, HOST, Codec, map_tensors
from dataflow.flows.flow import DRIVER, Flow
from dataflow.records.schema import AS_REQUESTED
from dataflow.transports.process_group import read_logged_paths
from dataflow.workers.worker_group import Connection, WorkerGroup

warnings.filterwarnings("ignore", message="Zero-copy tensor")  # Ray warns about writes to views; there are none


def by_driver_queue(workers: WorkerGroup) -> Connection:
    """Do as the demo: a queue is a slot in the driver, over ray.put and ray.get."""
    workers.start()
    flow, device = workers.sent_flow, workers.plan.device
    slots: dict = {}

    def get(edge):
        return HOST.decode(ray.get(ray.get(slots[edge])["reference"]), edge.message, device)

    def submit(query):
        for task in flow.tasks:
            # The driver reads each payload and sends it by value. In the demo, the query does not use a queue.
            inputs = [query if edge.source == DRIVER else get(edge) for edge in flow.edges_to(task.name)]
            output = workers.actors[task.actor].forward_step.remote(task.name, *inputs)
            for edge in flow.edges_from(task.name):
                slots[edge] = ray.put({"reference": output})  # ray.put does not accept a reference itself

    def collect(_):
        return [get(edge) for edge in flow.edges_to(DRIVER)]

    data_paths = {str(edge): "object store, driver" for edge in flow.edges}
    data_paths |= {str(edge): "argument of a call" for edge in flow.edges_from(DRIVER)}
    return Connection(submit, collect, data_paths)


def call_tasks(flow: Flow, methods: Mapping[str, Any], query: Any) -> list[ray.ObjectRef]:
    """Call the method of each task with references to its messages, and return those of the results."""
    sent = {DRIVER: query}
    for task in flow.tasks:
        inputs = (sent[edge.source] for edge in flow.edges_to(task.name))
        sent[task.name] = methods[task.name].remote(task.name, *inputs)
    return [sent[source] for source in flow.returns]


def by_store(workers: WorkerGroup, codec: Codec) -> Connection:
    """Pass references from call to call, without queues; the codec makes the data in the object store."""
    workers.start(codec=codec)
    flow, device = workers.sent_flow, workers.plan.device
    methods = {task.name: workers.actors[task.actor].forward_step for task in flow.tasks}
    results, is_small = flow.edges_to(DRIVER), flow.query.bytes <= INLINED_BYTES

    def submit(query):
        data = codec.encode(query)
        # A small argument travels in the call, as Ray's users write it. A large one is put once for all readers.
        return call_tasks(flow, methods, data if is_small else ray.put(data))

    def collect(references):
        return codec.decode_all(ray.get(references), results, device)

    # Ray keeps small messages in its calls and answers, and puts the others into the store.
    names = {True: "inlined in a call", False: "object store, reference"}
    return Connection(submit, collect, {str(edge): names[edge.bytes <= INLINED_BYTES] for edge in flow.edges})


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
    "driver-queue": by_driver_queue,
    "refs": partial(by_store, codec=HOST),  # tensors, which Ray pickles
    "bytes": partial(by_store, codec=BYTES),  # Python bytes, which Ray does not pickle
    "numpy": partial(by_store, codec=ARRAYS),  # numpy arrays, which Ray does not pickle and readers map
    "gloo": partial(by_group, backend="gloo"),
    "nccl": partial(by_group, backend="nccl"),
    "cuda-ipc": by_cuda_ipc,
    "nixl": by_nixl,
}
