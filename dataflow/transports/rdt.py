# SPDX-License-Identifier: Apache-2.0
"""Send tensors by Ray Direct Transport: they stay with their sender, and only references pass through Ray.

If the driver can neither send nor receive by a transport, a proxy actor does it in its place and answers with 8 bytes.
"""

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, cycle
from typing import Any

import ray
import torch
import torch.distributed as dist

from dataflow.endpoints.actor import Actor, Endpoint
from dataflow.endpoints.tensors import DENSE, Codec, Payload, list_tensors, map_tensors, unpack
from dataflow.flows.flow import DRIVER, Edge
from dataflow.flows.message import ALIGNMENT_BYTES
from dataflow.records.schema import AS_REQUESTED
from dataflow.transports.process_group import read_logged_paths
from dataflow.transports.store import call_tasks
from dataflow.workers.ray_internals import call_in, make_nixl_agent, put_by
from dataflow.workers.worker_group import Connection, WorkerGroup

POOL_MARGIN = 64 * 2**20  # bytes of a pool besides the messages


def by_group(workers: WorkerGroup, backend: str) -> Connection:
    """Send contiguous tensors between the members of a collective group of all actors.

    For gloo, Ray lets torch open a TCPStore, which listens on all interfaces. On one machine, the group of torch is
    formed before by a file, and Ray takes it. Both wait until all actors have joined, and raise the errors of Ray.
    """
    with warnings.catch_warnings():  # without a GPU, cupy warns that it finds no NCCL
        warnings.filterwarnings("ignore", r"\s*nccl library could not be loaded")
        from ray.experimental.collective import create_collective_group
    workers.start(codec=DENSE)
    start = time.perf_counter()
    actors = list(workers.actors.values())
    plan = workers.plan
    if backend == "gloo" and not plan.options.address:
        join = partial(
            dist.init_process_group,
            "gloo",
            f"file://{plan.run_folder}/rendezvous",
            world_size=len(actors),
        )

        def join_as(_: Actor, rank: int) -> None:
            join(rank=rank)

        ray.get([call_in(actor, partial(join_as, rank=rank)) for rank, actor in enumerate(actors)])
    # An existing cluster may have groups of other runs.
    create_collective_group(actors, backend=backend, name=f"actors-{plan.run_folder.name}")
    setup_seconds = {"group creation": time.perf_counter() - start}
    return by_direct_transport(workers, ray_name=backend.upper(), setup_seconds=setup_seconds)


def by_cuda_ipc(workers: WorkerGroup) -> Connection:
    """Let readers map the sender's memory on the same GPU."""
    workers.start()
    return by_direct_transport(workers, "CUDA_IPC", {})


def by_nixl(workers: WorkerGroup, pull: bool = False) -> Connection:
    """Let readers fetch from the memory of the senders.

    A message is the result of a call, or is put by its producer, who answers with the reference (`pull`). Ray cannot
    send the reference of a result in a list before the result is there, so only `pull` can receive in place.
    """
    options = workers.plan.options
    setup_seconds = {}
    codec = Fetch(put, one_by_one=options.one_by_one) if pull else None
    workers.start(NixlActor, NixlEndpoint, codec=codec)

    def time_in_all(name, function):
        start = time.perf_counter()
        workers.run_in_all(function)
        setup_seconds[name] = time.perf_counter() - start

    time_in_all("agents", make_agent)
    if options.registration != "none":
        time_in_all(
            "registration", register_memory if options.registration == "once" else register_pool
        )
    if options.reuse_buffers:
        time_in_all("registration of targets", partial(make_targets, codec=codec))
    connection = by_direct_transport(workers, "NIXL", setup_seconds, codec)

    def end():
        if options.registration == "once":
            time_in_all(
                "deregistration",
                partial(register_memory, register=ray.experimental.deregister_nixl_memory),
            )
        logged = read_logged_paths(workers.plan.run_folder, library="ucx")
        paths = ", ".join(["NIXL over UCX", *logged])
        data_paths = (
            dict.fromkeys(connection.data_paths, paths) if "," in paths else connection.data_paths
        )
        return {"data_paths": data_paths}  # the run has this dict of setup_seconds already

    return replace(connection, facts=end)


class NixlEndpoint(Endpoint):
    """The tensors of a message lie in one buffer, so that it is registered once for all of them."""

    def memory(self, task):
        message = self.task_flow.message(task)
        if message.is_parameters or self.plan.options.registration != "once":
            return None
        return lambda slot: torch.ones(message.packed_bytes, dtype=torch.uint8, device=self.device)


class NixlActor(NixlEndpoint, Actor):
    pass


def make_manager(endpoint):
    """Make Ray's manager of tensors, by its first use. Any tensor will do: this one has been sent to nobody.

    Ray 2.60 makes it without a lock. If the first message arrives in Ray's own thread while the main thread begins to
    wait for it, each makes a manager, and the main thread waits in the empty one (examples/rdt_hang.py).
    """
    ray.experimental.wait_tensor_freed(torch.empty(0))


def make_agent(endpoint):
    make_nixl_agent()


def register_memory(endpoint, register=ray.experimental.register_nixl_memory):
    """Register, or deregister, each tensor that the endpoint sends."""
    for outbox in endpoint.outboxes.values():
        for payload in outbox.buffers or outbox.pool:
            map_tensors(register, payload)


def register_pool(endpoint):
    """Register a pool, into which Ray copies each message."""
    sent_bytes = sum(
        len(outbox.sent) * outbox.message.packed_bytes for outbox in endpoint.outboxes.values()
    )
    ray.experimental.register_nixl_memory_pool(POOL_MARGIN + sent_bytes, endpoint.device)


@dataclass(frozen=True)
class Fetch(Codec):
    """Let the reader fetch messages from references in lists, which Ray does not resolve before the call.

    With targets, they arrive in memory that the reader has used `in_flight` messages ago, and no page is new.
    """

    decode: Any = None  # of one message; all messages of a call are fetched together
    one_by_one: bool = False
    targets: dict[str, Iterator[Payload]] = field(default_factory=dict)  # by edge

    def decode_all(
        self, received: Sequence[list[ray.ObjectRef]], edges: Sequence[Edge], device: Any
    ) -> list[Payload]:
        """Return the payloads of all messages; each is received as a list of one reference."""
        references = [reference for (reference,) in received]
        for reference, edge in zip(references, edges if self.targets else [], strict=False):
            ray.experimental.set_target_for_ref(
                reference, list_tensors(next(self.targets[str(edge)]))
            )
        return (
            [ray.get(reference) for reference in references]
            if self.one_by_one
            else ray.get(references)
        )


put_by_nixl = put_by("NIXL")


def put(payload):
    return [put_by_nixl(payload)]


def make_targets(endpoint, codec):
    """Register memory for the messages that a worker reads: per edge, one buffer for each iteration in flight, in turn.

    The codec's `targets` get it. Actors have their own copy of the codec, the driver has the given one.
    """
    in_flight = endpoint.plan.options.in_flight
    of_worker = getattr(endpoint, "codec", codec)
    flow = endpoint.sent_flow
    inputs = [flow.edges_to(task) for task in endpoint.inboxes]
    for edge in chain.from_iterable(inputs):
        size = edge.message.packed_bytes
        # So that the fields of each message are aligned.
        aligned = size + -size % ALIGNMENT_BYTES
        # Ones, so that its pages are in memory.
        buffers = torch.ones((in_flight, aligned), dtype=torch.uint8, device=endpoint.device)
        ray.experimental.register_nixl_memory(buffers)
        targets = [unpack(buffer[:size], edge.message) for buffer in buffers]
        of_worker.targets[str(edge)] = cycle(targets)


def by_direct_transport(
    workers: WorkerGroup, ray_name: str, setup_seconds: dict[str, float], codec: Codec | None = None
) -> Connection:
    """Pass references to tensors from call to call. The tensors move by the transport that Ray calls `ray_name`.

    With a codec, the results of calls are what it encodes, and no tensors.
    """
    workers.run_in_all(make_manager)
    flow = workers.sent_flow
    has_proxy = workers.plan.transport.requirements.proxy_actor
    methods = {}
    results = flow.edges_to(DRIVER)
    for task in flow.tasks:
        method = workers.actors[task.actor].forward_step
        # The answer of the proxy actor is an ordinary result.
        is_answer = has_proxy and task.name in flow.returns
        methods[task.name] = (
            method if is_answer or codec else method.options(tensor_transport=ray_name)
        )

    put_query = put_by(ray_name)

    def submit(query):
        if codec:
            return call_tasks(flow, methods, codec.encode(query))
        return call_tasks(flow, methods, query if has_proxy else put_query(query))

    def collect(references):
        answers = ray.get(references)
        return codec.decode_all(answers, results, workers.driver.device) if codec else answers

    # The loopback interface counts the bytes of gloo, and nothing counts those of the others.
    requested = "" if ray_name == "GLOO" else AS_REQUESTED
    paths = {str(edge): f"Ray Direct Transport, {ray_name}{requested}" for edge in flow.edges}
    if has_proxy:
        of_driver = (*flow.edges_from(DRIVER), *flow.edges_to(DRIVER))
        paths |= {str(edge): "argument or answer of a call" for edge in of_driver}
    return Connection(submit, collect, data_paths=paths, setup_seconds=setup_seconds)


TRANSPORTS = {
    "gloo": partial(by_group, backend="gloo"),
    "nccl": partial(by_group, backend="nccl"),
    "cuda-ipc": by_cuda_ipc,
    "nixl": by_nixl,
    "nixl-pull": partial(by_nixl, pull=True),
}
