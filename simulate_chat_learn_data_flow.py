"""What does one trip of the RLHF data flow cost over Ray's object store?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The clock runs from the query in the driver's hand to the reward's output in the driver's hand. Payloads are
made before and checked after, while it stands.

    python3 simulate_chat_learn_data_flow.py
    python3 simulate_chat_learn_data_flow.py --transport driver-queue --iterations 5
"""

from common.run import supervisor

if __name__ == "__main__":
    supervisor.main(__file__, __doc__)  # ends here; a worker imports what follows

import warnings

import ray
from ray.util.queue import Queue

from chatlearn.environment import Environment
from chatlearn.models import ChatLearnModel, HostModel, Sized, SizedDriver
from chatlearn.operations import Operations
from common.flow.flow import DRIVER
from common.payload.forms import from_arrays, from_bytes, to_arrays, to_bytes
from common.payload.leaves import to_device, to_host
from common.payload.model import Model
from common.record.rows import INLINED_BYTES
from common.runtime.crew import Crew, Wiring

warnings.filterwarnings("ignore", message="Zero-copy tensor")  # of writing to a view, which nobody does here


class SlotModel(Sized, Model):
    """The demo hands tensors over as they are; the driver moves them between host and device."""


class PumpModel(Sized, HostModel):
    def pump(self, task, inbox, outbox):
        """payload-queue: this actor's own loop body takes the payload itself from queue to queue."""
        output = self.forward_step(task, *(queue.get() for queue in inbox))
        for queue in outbox:
            queue.put(output)


class BytesModel(Model):
    def forward_step(self, task, *blobs):
        edges = self.wire.edges_to(task)
        inputs = [from_bytes(blob, edge.message, self.device) for blob, edge in zip(blobs, edges, strict=True)]
        return to_bytes(super().forward_step(task, *inputs))


class ArrayModel(Model):
    def forward_step(self, task, *arrays):
        return to_arrays(super().forward_step(task, *(from_arrays(message, self.device) for message in arrays)))


def by_driver_queue(crew: Crew) -> Wiring:
    """The demo's own stand-in for a queue: one slot in the driver, over ray.put and ray.get."""
    crew.start(SlotModel, SizedDriver)
    flow, device, slots, done = crew.flow, crew.plan.device, {}, Operations(crew)

    def put(edge, data):
        done.count("driver_put")
        # ray.put takes no bare reference, so the demo wraps it.
        slots[edge] = ray.put({"reference": data} if isinstance(data, ray.ObjectRef) else to_host(data))

    def get(edge):
        done.count("driver_get")
        data = ray.get(slots[edge])
        if isinstance(data, dict) and "reference" in data:
            data = ray.get(data["reference"])
        return to_device(done.materialised(data), device)

    def submit(query):
        done.begins()
        for task in flow.tasks:
            # Each payload into the driver; the query is there, and as in the demo it passes no queue.
            inputs = [query if edge.source == DRIVER else get(edge) for edge in flow.edges_to(task.name)]
            output = crew.actors[task.actor].forward_step.remote(task.name, *inputs)  # and out again, by value
            done.count("model_tasks")
            for edge in flow.edges_from(task.name):
                put(edge, output)

    def collect(_):
        return [get(edge) for edge in flow.edges_to(DRIVER)]

    path = {str(edge): "argument of a call" if edge.source == DRIVER else "object store, driver" for edge in flow.edges}
    return Wiring(submit, collect, path, facts=done.facts)


def by_ref_queue(crew: Crew) -> Wiring:
    """What ChatLearn does: queue actors for each edge carry references, resolved in the reading actor."""
    crew.start(ChatLearnModel, SizedDriver)
    environment = Environment(crew)
    paths = {str(edge): "object store, reference by Queue" for edge in crew.flow.edges}
    return Wiring(
        environment.submit,
        environment.collect,
        paths,
        check=environment.check,
        facts=environment.operations.facts,
        spans=environment.spans,
    )


def by_payload_queue(crew: Crew) -> Wiring:
    """What people write by mistake: the payload itself goes into the queue actor and out again."""
    crew.start(PumpModel, SizedDriver)
    flow, done = crew.flow, Operations(crew)
    queues = {edge: Queue() for edge in flow.edges}
    done.count("queue_actors", len(queues))  # once, before the first episode

    def get(edge):
        done.count("driver_get")
        return to_device(done.materialised(queues[edge].get()), crew.plan.device)

    def submit(query):
        done.begins()
        for edge in flow.edges_from(DRIVER):
            done.count("driver_put")
            queues[edge].put(to_host(query))
        done.count("model_tasks", len(flow.tasks))
        return [
            crew.actors[task.actor].pump.remote(
                task.name,
                [queues[edge] for edge in flow.edges_to(task.name)],
                [queues[edge] for edge in flow.edges_from(task.name)],
            )
            for task in flow.tasks
        ]

    def collect(pumps):
        ray.get(pumps)  # raises if an actor dies, where the queue alone would wait for ever
        return [get(edge) for edge in flow.edges_to(DRIVER)]

    path = {str(edge): "object store, payload by Queue" for edge in flow.edges}
    return Wiring(submit, collect, path, facts=done.facts)


def by_refs(crew: Crew) -> Wiring:
    """References from call to call, no queue."""
    crew.start(HostModel)
    return Wiring(lambda query: call_tasks(crew, to_host(query)), lambda refs: fetch(crew, refs), paths_of_calls(crew))


def by_bytes(crew: Crew) -> Wiring:
    """The same with plain Python bytes, which Ray does not pickle."""
    crew.start(BytesModel)
    edges = crew.flow.edges_to(DRIVER)

    def collect(references):
        blobs = ray.get(references)
        return [from_bytes(blob, edge.message, crew.plan.device) for blob, edge in zip(blobs, edges, strict=True)]

    return Wiring(lambda query: call_tasks(crew, to_bytes(query)), collect, paths_of_calls(crew))


def by_numpy(crew: Crew) -> Wiring:
    """The same with numpy arrays, which Ray lays into the store as they are and readers map."""
    crew.start(ArrayModel)

    def collect(references):
        return [from_arrays(arrays, crew.plan.device) for arrays in ray.get(references)]

    return Wiring(lambda query: call_tasks(crew, to_arrays(query)), collect, paths_of_calls(crew))


def call_tasks(crew, message):
    # Small arguments travel with the call, as Ray's users write it; large ones are put once for all readers.
    emitted = {DRIVER: message if crew.flow.query.bytes <= INLINED_BYTES else ray.put(message)}
    for task in crew.flow.tasks:
        inputs = (emitted[edge.source] for edge in crew.flow.edges_to(task.name))
        emitted[task.name] = crew.actors[task.actor].forward_step.remote(task.name, *inputs)
    return [emitted[source] for source in crew.flow.returns]


def fetch(crew, references):
    return [to_device(message, crew.plan.device) for message in ray.get(references)]


def paths_of_calls(crew):
    """Ray keeps small messages in its calls and answers, and puts the others into the store."""
    ways = {True: "inlined in a call", False: "object store, reference"}
    return {str(edge): ways[edge.bytes <= INLINED_BYTES] for edge in crew.flow.edges}
