# SPDX-License-Identifier: Apache-2.0
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

# Ray warns about writes to views; there are none.
warnings.filterwarnings("ignore", message="Zero-copy tensor")


def by_driver_queue(workers: WorkerGroup) -> Connection:
    """Do as the demo: a queue is a slot in the driver, over ray.put and ray.get.

    `submit` waits for each message that the driver passes on from one actor to another, and raises errors of actors.
    """
    workers.start()
    flow = workers.sent_flow
    device = workers.plan.device
    slots: dict = {}  # edge -> reference to a dict in the store, which has the reference to the message

    def get(edge):
        """Read the message of an edge into the memory of the driver's device."""
        item = ray.get(slots[edge])
        payload = ray.get(item["reference"])
        return HOST.decode(payload, edge.message, device)

    def submit(query):
        for task in flow.tasks:
            # The driver reads each payload and sends it by value. In the demo, the query does not use a queue.
            inputs = [
                query if edge.source == DRIVER else get(edge) for edge in flow.edges_to(task.name)
            ]
            output = workers.actors[task.actor].forward_step.remote(task.name, *inputs)
            for edge in flow.edges_from(task.name):
                # ray.put does not accept a reference itself.
                slots[edge] = ray.put({"reference": output})

    def collect(_):
        return [get(edge) for edge in flow.edges_to(DRIVER)]

    data_paths = {}
    for edge in flow.edges:
        is_query = edge.source == DRIVER
        data_paths[str(edge)] = "argument of a call" if is_query else "object store, driver"
    return Connection(submit, collect, data_paths=data_paths)


def call_tasks(flow: Flow, methods: Mapping[str, Any], query: Any) -> list[ray.ObjectRef]:
    """Call the method of each task with references to its messages, and return those of the results."""
    sent = {DRIVER: query}
    for task in flow.tasks:
        edges = flow.edges_to(task.name)
        inputs = (sent[edge.source] for edge in edges)
        method = methods[task.name]
        sent[task.name] = method.remote(task.name, *inputs)
    return [sent[source] for source in flow.returns]


def by_store(workers: WorkerGroup, codec: Codec) -> Connection:
    """Pass references from call to call, without queues; the codec makes the data in the object store."""
    workers.start(codec=codec)
    flow = workers.sent_flow
    device = workers.plan.device
    methods = {}
    for task in flow.tasks:
        methods[task.name] = workers.actors[task.actor].forward_step
    results = flow.edges_to(DRIVER)
    is_small = flow.query.bytes <= INLINED_BYTES

    def submit(query):
        data = codec.encode(query)
        # A small argument travels in the call, as Ray's users write it. A large one is put once for all readers.
        argument = data if is_small else ray.put(data)
        return call_tasks(flow, methods, argument)

    def collect(references):
        return codec.decode_all(ray.get(references), results, device)

    # Ray keeps small messages in its calls and answers, and puts the others into the store.
    data_paths = {}
    for edge in flow.edges:
        is_inlined = edge.bytes <= INLINED_BYTES
        data_paths[str(edge)] = "inlined in a call" if is_inlined else "object store, reference"
    return Connection(submit, collect, data_paths=data_paths)


TRANSPORTS = {
    "driver-queue": by_driver_queue,
    # Tensors, which Ray pickles.
    "refs": partial(by_store, codec=HOST),
    # Python bytes, which Ray does not pickle.
    "bytes": partial(by_store, codec=BYTES),
    # numpy arrays, which Ray does not pickle and readers map.
    "numpy": partial(by_store, codec=ARRAYS),
}
