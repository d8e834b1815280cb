# SPDX-License-Identifier: Apache-2.0
"""Send messages through the channels of one Ray compiled graph."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import ray
from ray.dag import ClassMethodNode, DAGNode, InputNode, MultiOutputNode
from ray.experimental.channel.communicator import Communicator

from dataflow.endpoints.actor import Actor
from dataflow.endpoints.tensors import ARRAYS, BYTES, DENSE, UNCHANGED, Codec
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER, Flow
from dataflow.plan.plan import CHANNEL_HEADROOM_BYTES
from dataflow.transports.shared_ring import RingActor, RingEndpoint, start_with_rings
from dataflow.workers import cleanup, ray_internals
from dataflow.workers.worker_group import Connection, WorkerGroup

# Of messages between actors: None, "shm", "nccl", or what sends in place of NCCL.
Hint: TypeAlias = str | Communicator | None


class GraphActor(Actor):
    def pass_through(self, task, message):
        return message

    def run_after(self, task, *messages):
        """Run a task that reads messages of its own actor; its last arguments only tell Ray what must come first."""
        count = len(self.inboxes[task].edges)
        return self.forward_step(task, *messages[:count])


class MappedActor(GraphActor, RingActor):
    pass


def by_graph(workers: WorkerGroup, codec: Codec, hint: Hint = None) -> Connection:
    """Send the codec's data through the graph's channels, which have this type hint."""
    workers.start(GraphActor, codec=codec)
    return connect_graph(workers, codec, hint)


def connect_graph(workers: WorkerGroup, codec: Codec, hint: Hint) -> Connection:
    """Return the connection of a graph of actors that have started."""
    graph, data_paths = compile_graph(workers, hint)
    results = workers.sent_flow.edges_to(DRIVER)
    device = workers.plan.device
    return Connection(
        submit=lambda query: graph.execute(codec.encode(query)),
        collect=lambda result: codec.decode_all(ray.get(result), results, device),
        data_paths=data_paths,
    )


def by_mapped(workers: WorkerGroup) -> Connection:
    """Leave payloads where their sender wrote them; the graph carries handles."""
    start_with_rings(workers, MappedActor, RingEndpoint)
    # Handles fit into the bytes that each channel has besides its messages.
    graph, channels = compile_graph(workers, count_bytes=lambda _: 0)
    driver = workers.driver
    data_paths = {}
    for edge, channel in channels.items():
        data_paths[edge] = f"mapped /dev/shm, handle by {channel}"
    return Connection(
        submit=lambda query: graph.execute(driver.handle(DRIVER)),
        collect=lambda result: driver.open_all(DRIVER, ray.get(result)),
        data_paths=data_paths,
    )


def largest_message(endpoint: Any) -> int:
    """Return the bytes of the largest message that this worker sends, with the headers of its tensors."""
    flow = endpoint.sent_flow
    largest = 0
    for task in endpoint.outboxes:
        message = flow.message(task).largest
        headers_bytes = 512 * len(message.tensor_bytes)
        largest = max(largest, message.serialised_bytes + headers_bytes)
    return largest


def compile_graph(
    workers: WorkerGroup,
    hint: Hint = None,
    count_bytes: Callable[[Any], int] = largest_message,
    passes_each: bool = False,
):
    """Return the compiled graph, and for each edge the type hint and the channel that Ray uses.

    count_bytes: returns the largest data that a worker writes into a channel. With `passes_each`, a task gets each of
    its inputs by a call of its own (`pass_through`), which does not wait for the others.

    Raise RunFailed if an edge has another channel than the transport should use.
    """
    plan = workers.plan
    flow = workers.sent_flow

    def prepare_channels(endpoint: Any) -> None:
        ray_internals.set_channel_bytes(count_bytes(endpoint) + CHANNEL_HEADROOM_BYTES)

    workers.run_in_all(prepare_channels)
    # As many buffers per channel: a reader may hold views of some messages while others are written.
    buffers = plan.stored_iterations
    bound = bind(flow, workers.actors, hint, passes_each)
    graph = ray_internals.compile_graph(bound, buffers)
    if plan.options.address:
        clean_up_at_end(workers, graph)
    data_paths = read_data_paths(graph, flow)
    check_data_paths(data_paths, flow, hint, plan.transport.name)
    return graph, data_paths


def bind(flow, actors, hint, passes_each=False):
    """Return the flow as a graph of the actors' methods, not yet compiled; its results are those of the flow."""
    with InputNode() as query:
        sent = {DRIVER: query}
        if hint:
            query.with_tensor_transport("shm")  # the driver is never an NCCL rank
        for task in flow.tasks:
            actor = actors[task.actor]
            inputs = [sent[edge.source] for edge in flow.edges_to(task.name)]
            # Ray cannot compile a task that joins accelerator edges. It can compile methods that receive one message
            # each and pass it on, inside the reading actor.
            if passes_each or (is_accelerated(hint) and len(inputs) > 1):
                inputs = [actor.pass_through.bind(task.name, message) for message in inputs]
            message = bind_task(flow, task, actor, inputs, sent)
            sent[task.name] = message
            if hint:
                is_result = task.name in flow.returns
                # Ray refuses an accelerator for a message that only its own actor reads.
                stays_on_actor = not flow.edges_from(task.name)
                message.with_tensor_transport("shm" if is_result or stays_on_actor else hint)
        results = [sent[source] for source in flow.returns]
        return MultiOutputNode(results)


def bind_task(flow, task, actor, inputs, sent):
    """Return the node of a task. sent: the nodes of the driver and of all tasks before it."""
    # Messages of the task's own actor are no inputs, because they are there already. Ray gets them as arguments
    # so that it runs their tasks before this one.
    run_before = []
    for source in task.reads:
        is_own = flow.actor(source) == task.actor
        if is_own:
            run_before.append(sent[source])
    method = actor.run_after if run_before else actor.forward_step
    return method.bind(task.name, *inputs, *run_before)


def is_accelerated(hint: Hint) -> bool:
    """Return whether messages between actors move from GPU to GPU."""
    return hint not in (None, "shm")


def read_data_paths(graph: Any, flow: Flow) -> dict[str, str]:
    """Return the type hint and the channel of each edge, as the compiled graph has them."""
    paths = {}
    for edge in ray_internals.edges_of_graph(graph):
        name = f"{_task_of(edge.source)} -> {_task_of(edge.reader)}"
        paths[name] = f"{edge.type_hint} over {edge.channel}"
    return {str(edge): paths[str(edge)] for edge in flow.edges}


def _task_of(node: DAGNode) -> str:
    """Return the name of the task that a node of the graph runs; the driver has none."""
    return ray_internals.arguments_of(node)[0] if isinstance(node, ClassMethodNode) else DRIVER


def check_data_paths(paths: dict[str, str], flow: Flow, hint: Hint, transport: str) -> None:
    """Raise RunFailed if Ray silently chose another channel for an edge, which would be another configuration.

    So it would be if no message went from GPU to GPU.
    """
    type_hint = "TorchTensorType" if hint else "SharedMemoryType"
    accelerated = [path for path in paths.values() if "Accelerator" in path]
    if is_accelerated(hint) and not accelerated:
        raise RunFailed(
            f"no message of {flow.name} goes from GPU to GPU: this would measure shared memory"
        )
    for edge in flow.edges:
        is_between_actors = edge.source != DRIVER and edge.source not in flow.returns
        needs_accelerator = is_accelerated(hint) and is_between_actors
        path = paths[str(edge)]
        has_hint = path.startswith(type_hint)
        has_accelerator = "Accelerator" in path
        if not has_hint or has_accelerator != needs_accelerator:
            raise RunFailed(f"{edge} uses {path}, which is not the data path of {transport}")


def clean_up_at_end(workers, graph):
    """Register what removes everything of the graph at the end of the run, from a cluster that goes on."""
    workers.closing.callback(graph.teardown)
    names: set[str] = set()
    by_worker = workers.run_in_all(lambda _: cleanup.channel_semaphores())
    for names_of_worker in by_worker.values():
        names.update(names_of_worker)
    # The guard removes those of this machine.
    cleanup.remember(workers.plan.run_folder, "semaphores", names)

    def unlink_on_other_machines():
        calls = []
        for actor in workers.actors.values():
            call = ray_internals.call_in(actor, lambda _: cleanup.unlink_semaphores(names))
            calls.append(call)
        ray.wait(calls, num_returns=len(calls), timeout=5)  # does not raise if an actor is dead

    workers.closing.callback(unlink_on_other_machines)


TRANSPORTS = {
    # Ray pickles the tensors.
    "pickle": partial(by_graph, codec=UNCHANGED),
    # Python bytes, which Ray does not pickle.
    "bytes": partial(by_graph, codec=BYTES),
    # Tensors are written once, and each reader copies them.
    "shm": partial(by_graph, codec=DENSE, hint="shm"),
    # GPU to GPU; the driver's own edges use host memory.
    "nccl": partial(by_graph, codec=DENSE, hint="nccl"),
    # numpy arrays, which readers map as tensors.
    "zero-copy": partial(by_graph, codec=ARRAYS),
    "mapped": by_mapped,
}
