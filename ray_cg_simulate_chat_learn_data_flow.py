"""What does one trip of the RLHF data flow cost as one Ray compiled graph?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The clock runs from the query in the driver's hand to the reward's output in the driver's hand. Payloads are
made before and checked after, while it stands.

    python3 ray_cg_simulate_chat_learn_data_flow.py
    python3 ray_cg_simulate_chat_learn_data_flow.py --transport zero-copy --iterations 20
"""

from common.run import supervisor

if __name__ == "__main__":
    supervisor.main(__file__, __doc__)  # ends here; a worker imports what follows

import ray
from ray.dag import InputNode, MultiOutputNode
from ray.dag.context import DAGContext

from common.flow.flow import DRIVER
from common.payload.forms import from_arrays, from_bytes, to_arrays, to_bytes
from common.payload.leaves import map_tensors
from common.payload.model import Model
from common.payload.participant import Participant
from common.runtime.crew import Crew, Wiring
from common.runtime.needs import CHANNEL_HEADROOM_BYTES, stored_trips
from common.runtime.workplace import channel_semaphores, remember, unlink_semaphores
from common.transport import warm_receive
from common.transport.graph_proof import edge_paths, refuse_fallback
from common.transport.ring_participant import RingModel, RingParticipant, open_rings


class ChannelEnd(Participant):
    """Sizes the channels that it writes: Ray takes the writing process's word for it, and no argument."""

    def __init__(self, plan, name):
        super().__init__(plan, name)
        largest = max(self.channel_bytes(task) for task in self.outboxes)
        DAGContext.get_current().buffer_size_bytes = largest + CHANNEL_HEADROOM_BYTES
        if plan.options.reuse_buffers:
            warm_receive.install()

    def channel_semaphores(self):
        return channel_semaphores()

    def unlink_semaphores(self, names):
        unlink_semaphores(names)

    def channel_bytes(self, task):
        return self.wire.message(task).shipped_bytes + 512 * len(self.wire.message(task).leaves)


class GraphModel(ChannelEnd, Model):
    def pass_through(self, task, message):
        return message

    def follow(self, task, *_):
        return self.forward_step(task)


class DenseModel(GraphModel):
    """The hint takes contiguous tensors alone."""

    def forward_step(self, task, *inputs):
        return dense(super().forward_step(task, *inputs))


class ArrayModel(GraphModel):
    def forward_step(self, task, *arrays):
        return to_arrays(super().forward_step(task, *(from_arrays(message, self.device) for message in arrays)))


class BytesModel(GraphModel):
    def forward_step(self, task, *blobs):
        edges = self.wire.edges_to(task)
        inputs = [from_bytes(blob, edge.message, self.device) for blob, edge in zip(blobs, edges, strict=True)]
        return to_bytes(super().forward_step(task, *inputs))


class HandleEnd(RingParticipant, ChannelEnd):
    def channel_bytes(self, task):
        return 0


class HandleModel(HandleEnd, RingModel, GraphModel):
    pass


def dense(message):
    return map_tensors(lambda tensor: tensor.contiguous(), message)


def bind(flow, actors, hint):
    """The flow as a graph of the actors' methods, not yet compiled.

    Returns:
        A DAGNode whose results are the outputs that return to the driver, in the flow's order.
    """
    with InputNode() as query:
        emitted = {DRIVER: query}
        if hint:
            query.with_tensor_transport("shm")  # the driver is never an NCCL rank
        for task in flow.tasks:
            actor, edges = actors[task.actor], flow.edges_to(task.name)
            inputs = [emitted[edge.source] for edge in edges]
            if hint == "nccl" and len(inputs) > 1:
                # Ray cannot compile a task that joins accelerator edges; it can compile methods that
                # receive one each and pass it on, inside the reading actor.
                inputs = [actor.pass_through.bind(task.name, message) for message in inputs]
            if edges:
                emitted[task.name] = actor.forward_step.bind(task.name, *inputs)
            else:  # what it reads is on its actor already; the graph must know what comes before it
                emitted[task.name] = actor.follow.bind(task.name, *(emitted[source] for source in task.reads))
            if hint:
                returns = task.name in flow.returns
                emitted[task.name].with_tensor_transport("shm" if returns else hint)
        return MultiOutputNode([emitted[source] for source in flow.returns])


def compile_graph(crew: Crew, hint: str | None):
    """The graph, and how its edges really travel."""
    # As many buffers a channel: a reader may hold the views of some, while others are written beside them.
    graph = bind(crew.flow, crew.actors, hint).experimental_compile(
        _max_inflight_executions=stored_trips(crew.plan.row, crew.plan.options)
    )
    # Ray starts a process beside every graph, which would go on starting in the first trips.
    ray.get(graph._proxy_actor.__ray_ready__.remote())
    if crew.plan.layout.address:  # nobody ends that cluster, so nothing of ours may stay in it
        crew.closing.callback(graph.teardown)
        names = [name for found in crew.ask("channel_semaphores").values() for name in found]
        remember(crew.plan.folder, semaphores=names)  # removed with the folder; on other machines by who is there
        crew.closing.callback(unlink_elsewhere, crew, names)
    paths = edge_paths(graph, crew.flow)
    refuse_fallback(paths, crew.flow, hint, crew.plan.row.transport)
    return graph, paths


def unlink_elsewhere(crew, names):
    unlinked = [actor.unlink_semaphores.remote(names) for actor in crew.actors.values()]
    ray.wait(unlinked, num_returns=len(unlinked), timeout=5)


def by_nccl(crew: Crew) -> Wiring:
    """GPU to GPU; the driver's own edges through host memory."""
    crew.start(DenseModel, ChannelEnd)
    graph, paths = compile_graph(crew, "nccl")
    return Wiring(lambda query: graph.execute(dense(query)), ray.get, paths)


def by_shm(crew: Crew) -> Wiring:
    """TorchTensorType over a shared-memory channel: tensors are written once, and copied out by each reader."""
    crew.start(DenseModel, ChannelEnd)
    graph, paths = compile_graph(crew, "shm")
    return Wiring(lambda query: graph.execute(dense(query)), ray.get, paths)


def by_pickle(crew: Crew) -> Wiring:
    """The same channel without the hint: tensors are pickled in band."""
    crew.start(GraphModel, ChannelEnd)
    graph, paths = compile_graph(crew, None)
    return Wiring(graph.execute, ray.get, paths)


def by_bytes(crew: Crew) -> Wiring:
    """Plain Python bytes, which Ray does not pickle."""
    crew.start(BytesModel, ChannelEnd)
    graph, paths = compile_graph(crew, None)
    edges = crew.flow.edges_to(DRIVER)

    def collect(result):
        return [from_bytes(b, edge.message, crew.plan.device) for b, edge in zip(ray.get(result), edges, strict=True)]

    return Wiring(lambda query: graph.execute(to_bytes(query)), collect, paths)


def by_zero_copy(crew: Crew) -> Wiring:
    """Arrays out, which readers map as tensors: nothing is copied on reading."""
    crew.start(ArrayModel, ChannelEnd)
    graph, paths = compile_graph(crew, None)

    def collect(result):
        return [from_arrays(message, crew.plan.device) for message in ray.get(result)]

    return Wiring(lambda query: graph.execute(to_arrays(query)), collect, paths)


def by_mapped(crew: Crew) -> Wiring:
    """Payloads stay where their producer wrote them; the graph carries handles."""
    crew.start(HandleModel, HandleEnd)
    open_rings(crew)
    graph, paths = compile_graph(crew, None)
    driver, memory = crew.driver, "CUDA IPC" if crew.plan.device == "cuda" else "/dev/shm"
    paths = {edge: f"mapped {memory}, handle by {path}" for edge, path in paths.items()}
    return Wiring(
        lambda _: graph.execute(driver.handle(DRIVER)), lambda result: driver.open(DRIVER, ray.get(result)), paths
    )
