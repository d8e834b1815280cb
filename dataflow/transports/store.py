"""Send messages over Ray's object store, by value through the driver, or as references."""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import ray

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.endpoints.tensors import ARRAYS, BYTES, HOST, Codec
from dataflow.flows.flow import DRIVER, Flow
from dataflow.workers.worker_group import Connection, WorkerGroup

warnings.filterwarnings(
    "ignore", message="Zero-copy tensor"
)  # Ray warns about writes to views; there are none


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
            inputs = [
                query if edge.source == DRIVER else get(edge) for edge in flow.edges_to(task.name)
            ]
            output = workers.actors[task.actor].forward_step.remote(task.name, *inputs)
            for edge in flow.edges_from(task.name):
                slots[edge] = ray.put(
                    {"reference": output}
                )  # ray.put does not accept a reference itself

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
    return Connection(
        submit, collect, {str(edge): names[edge.bytes <= INLINED_BYTES] for edge in flow.edges}
    )


TRANSPORTS = {
    "driver-queue": by_driver_queue,
    "refs": partial(by_store, codec=HOST),  # tensors, which Ray pickles
    "bytes": partial(by_store, codec=BYTES),  # Python bytes, which Ray does not pickle
    "numpy": partial(
        by_store, codec=ARRAYS
    ),  # numpy arrays, which Ray does not pickle and readers map
}
