"""What does one trip of the RLHF data flow cost over Ray Direct Transport?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

Ordinary actor calls whose tensors stay with their producer; only references pass through Ray. The clock runs
from the query in the driver's hand to the reward's output in the driver's hand. Payloads are made before and
checked after, while it stands. A driver that cannot send or read itself has both ends in an actor of its own,
the trainer, and the clock stops at its short answer.

    python3 ray_rdt_simulate_chat_learn_data_flow.py
    python3 ray_rdt_simulate_chat_learn_data_flow.py --transport mapped --iterations 20
"""

from common.run import supervisor

if __name__ == "__main__":
    supervisor.main(__file__, __doc__)  # ends here; a worker imports what follows

import time
import warnings

import ray

from common.flow.flow import DRIVER
from common.payload.leaves import map_tensors
from common.payload.model import Model
from common.runtime.crew import Crew, Wiring
from common.transport import ring_rdt
from common.transport.ring_participant import RingParticipant, open_rings

with warnings.catch_warnings():  # without a GPU, cupy says that it finds no NCCL
    warnings.filterwarnings("ignore", r"\s*nccl library could not be loaded")
    from ray.experimental.collective import create_collective_group


class DenseModel(Model):
    """Two-sided transports send contiguous tensors alone."""

    def forward_step(self, task, *inputs):
        return map_tensors(lambda tensor: tensor.contiguous(), super().forward_step(task, *inputs))


class NixlModel(Model):
    def register_pools(self):
        """Registered memory; without this every message is registered anew."""
        register_pools(self)


class MappedModel(RingParticipant, Model):
    def open_inputs(self):
        super().open_inputs()
        ring_rdt.register(self)


class MappedDriver(RingParticipant):
    def open_inputs(self):
        super().open_inputs()
        ring_rdt.register(self)


def register_pools(participant):
    for outbox in participant.outboxes.values():
        outbox.map_pool(ray.experimental.register_nixl_memory)


def call_tasks(crew, query):
    """The flow as actor calls; what a trainer answers the driver with is no tensor that stays."""
    flow, name = crew.flow, name_of(crew)
    emitted = {DRIVER: query}
    for task in flow.tasks:
        call = crew.actors[task.actor].forward_step
        if not (crew.plan.layout.trainer and task.name in flow.returns):
            call = call.options(tensor_transport=name)
        inputs = (emitted[edge.source] for edge in flow.edges_to(task.name))
        emitted[task.name] = call.remote(task.name, *inputs)
    return [emitted[source] for source in flow.returns]


def name_of(crew):
    """As Ray calls the transport."""
    return crew.plan.row.transport.upper().replace("-", "_")


def paths(crew):
    return {
        str(edge): "argument or answer of a call"
        if crew.plan.layout.trainer and (edge.source == DRIVER or edge.reader == DRIVER)
        else f"Ray Direct Transport, {name_of(crew)}"
        for edge in crew.flow.edges
    }


def from_trainer(crew: Crew, setup_seconds: dict[str, float]) -> Wiring:
    """The driver sends a word and gets one; the trainer emits the query and holds the results."""
    return Wiring(lambda query: call_tasks(crew, query), ray.get, paths(crew), setup_seconds)


def from_driver(crew: Crew, setup_seconds: dict[str, float]) -> Wiring:
    """The driver itself puts the query and gets the results, one-sided."""
    name = name_of(crew)
    return Wiring(
        lambda query: call_tasks(crew, ray.put(query, _tensor_transport=name)), ray.get, paths(crew), setup_seconds
    )


def two_sided(crew: Crew) -> Wiring:
    """Actors that form a group first."""
    crew.start(DenseModel)
    begin = time.perf_counter()
    create_collective_group(list(crew.actors.values()), backend=crew.plan.row.transport)
    return from_trainer(crew, {"group creation": time.perf_counter() - begin})


by_gloo = by_nccl = two_sided


def by_cuda_ipc(crew: Crew) -> Wiring:
    """Readers map the producer's memory on the same GPU."""
    crew.start(Model)
    return from_trainer(crew, {})


def by_nixl(crew: Crew) -> Wiring:
    """One-sided reads of memory that was registered beforehand."""
    crew.start(NixlModel)
    begin = time.perf_counter()
    ray.get([actor.register_pools.remote() for actor in crew.actors.values()])
    register_pools(crew.driver)
    return from_driver(crew, {"agents, memory registration": time.perf_counter() - begin})


def by_mapped(crew: Crew) -> Wiring:
    """The suite's own transport, by Ray's extension point: metadata is the handle, and nothing is copied."""
    ring_rdt.register()  # before any actor exists
    crew.start(MappedModel, MappedDriver)
    open_rings(crew)
    return from_driver(crew, {})
