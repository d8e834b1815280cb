"""Send messages over Ray's object store: by value, as references, or through queue actors.

python3 -m dataflow run "store refs"
"""

import os
import time
import uuid
import warnings
from collections import ChainMap
from functools import partial

import ray
import torch
from ray.util.queue import Queue

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.endpoints.actor import Actor
from dataflow.endpoints.codecs import ARRAYS, BYTES, HOST, Codec
from dataflow.endpoints.tensors import to_host
from dataflow.flows.flow import DRIVER
from dataflow.studies.chatlearn.driver import Driver, QueueCounters
from dataflow.studies.chatlearn.models import ChatLearnActor
from dataflow.workers.worker_group import Connection, WorkerGroup

warnings.filterwarnings("ignore", message="Zero-copy tensor")  # Ray warns about writes to views; there are none


PARTITION, FLAT = "iterations", "flat"  # of TransferQueue


class QueueActor(Actor):
    def run_task(self, task, inputs, outputs):
        result = self.forward_step(task, *(queue.get() for queue in inputs))
        for queue in outputs:
            queue.put(result)


def by_payload_queue(workers: WorkerGroup) -> Connection:
    """Send each payload itself through a queue actor: a common mistake."""
    workers.start(QueueActor, codec=HOST)
    flow, counters = workers.sent_flow, QueueCounters(workers)
    queues = {edge: Queue() for edge in flow.edges}
    counters.count("queue_actors", len(queues))  # once, before the first group

    def submit(query):
        counters.count("iterations")
        for edge in flow.edges_from(DRIVER):
            counters.count("driver_put")
            queues[edge].put(to_host(query))
        calls = []
        for task in flow.tasks:
            counters.count("model_tasks")
            inputs = [queues[edge] for edge in flow.edges_to(task.name)]
            outputs = [queues[edge] for edge in flow.edges_from(task.name)]
            calls.append(workers.actors[task.actor].run_task.remote(task.name, inputs, outputs))
        return calls

    def collect(calls):
        ray.get(calls)  # raises if an actor dies; reading a queue would wait for ever
        counters.count("driver_get", len(flow.returns))
        return [counters.receive(queues[edge].get()) for edge in flow.edges_to(DRIVER)]

    data_paths = {str(edge): "object store, payload by Queue" for edge in flow.edges}
    return Connection(submit, collect, data_paths, facts=counters.facts)


def by_driver_queue(workers: WorkerGroup) -> Connection:
    """Do as the demo: a queue is a slot in the driver, over ray.put and ray.get."""
    workers.start()
    flow, counters = workers.sent_flow, QueueCounters(workers)
    slots = {}

    def put(edge, data):
        counters.count("driver_put")
        # ray.put does not accept a reference, so the demo wraps it.
        slots[edge] = ray.put({"reference": data} if isinstance(data, ray.ObjectRef) else to_host(data))

    def get(edge):
        counters.count("driver_get")
        data = ray.get(slots[edge])
        if isinstance(data, dict) and "reference" in data:
            data = ray.get(data["reference"])
        return counters.receive(data)

    def submit(query):
        counters.count("iterations")
        for task in flow.tasks:
            # The driver reads each payload and sends it by value. In the demo, the query does not use a queue.
            inputs = [query if edge.source == DRIVER else get(edge) for edge in flow.edges_to(task.name)]
            output = workers.actors[task.actor].forward_step.remote(task.name, *inputs)
            counters.count("model_tasks")
            for edge in flow.edges_from(task.name):
                put(edge, output)

    def collect(_):
        return [get(edge) for edge in flow.edges_to(DRIVER)]

    data_paths = {str(edge): "object store, driver" for edge in flow.edges}
    data_paths |= {str(edge): "argument of a call" for edge in flow.edges_from(DRIVER)}
    return Connection(submit, collect, data_paths, facts=counters.facts)


def by_ref_queue(workers: WorkerGroup) -> Connection:
    """Do as ChatLearn: queue actors carry references, and the reading actor gets the payload."""
    workers.start(ChatLearnActor, codec=HOST)
    driver = Driver(workers)
    functions: dict = {"facts": driver.counters.facts}
    if driver.training:
        functions |= {"check": driver.training.check, "spans": driver.training.spans}
    data_paths = {str(edge): "object store, reference by Queue" for edge in workers.sent_flow.edges}
    return Connection(driver.submit, driver.collect, data_paths, **functions)


def by_value(workers: WorkerGroup, has_replay_buffer: bool = False) -> Connection:
    """Do as ColossalAI: a sender calls each of its readers with the payload itself."""
    from dataflow.studies.detached_ppo.actors import CallingActor  # other transports do not need it

    workers.start(CallingActor, codec=HOST)
    flow, actors = workers.sent_flow, workers.actors
    ray.get([actor.join.remote(actors, has_replay_buffer) for actor in actors.values()])

    def submit(query):
        edges = flow.edges_from(DRIVER)
        return [actors[flow.actor(edge.reader)].call.remote(edge.reader, DRIVER, to_host(query)) for edge in edges]

    def collect(calls):
        results: dict = {}
        while calls:
            answers = ray.get(calls)
            results |= dict(ChainMap(*(found for found, _ in answers)))
            calls = [call for _, more in answers for call in more]
        return HOST.decode_all([results[source] for source in flow.returns], flow.edges_to(DRIVER), workers.plan.device)

    return Connection(submit, collect, {str(edge): "argument of a call" for edge in flow.edges})


class TransferQueueActor(Actor):
    def run_task(self, task, *metadata):
        return put_rows(task, self.forward_step(task, *map(get_rows, metadata)))


def put_rows(task, payload):
    """Put a message into TransferQueue, a sample per row or one row for a tensor; return its metadata."""
    import transfer_queue
    from tensordict import TensorDict

    if isinstance(payload, torch.Tensor):
        payload = TensorDict({FLAT: payload.unsqueeze(0)}, batch_size=[1])
    message = uuid.uuid4().hex
    keys = [f"{task}-{message}-{row}" for row in range(len(payload))]
    return transfer_queue.kv_batch_put(keys=keys, partition_id=PARTITION, fields=payload)


def get_rows(metadata):
    import transfer_queue

    rows = transfer_queue.kv_batch_get_by_meta(metadata)
    return rows[FLAT][0] if FLAT in rows else rows


def by_transfer_queue(workers: WorkerGroup) -> Connection:
    """Do as verl with TransferQueue: actors put and get rows in its storage, and calls carry their metadata."""
    os.environ["TQ_LOGGING_LEVEL"] = "ERROR"  # of all processes that Ray starts, too
    import transfer_queue  # `make peers` installs it

    start = time.perf_counter()
    transfer_queue.init()
    workers.start(TransferQueueActor)
    flow, actors = workers.sent_flow, workers.actors

    def submit(query):
        sent = {DRIVER: put_rows(DRIVER, query)}
        for task in flow.tasks:
            inputs = (sent[edge.source] for edge in flow.edges_to(task.name))
            sent[task.name] = actors[task.actor].run_task.remote(task.name, *inputs)
        return sent

    def collect(sent):
        query = sent.pop(DRIVER)
        metadata = dict(zip(sent, ray.get([*sent.values()]), strict=True))
        results = [get_rows(metadata[edge.source]) for edge in flow.edges_to(DRIVER)]
        for rows in (query, *metadata.values()):  # as verl does at the end of a step
            transfer_queue.kv_clear(keys=rows.keys, partition_id=PARTITION)
        return results

    data_paths = {str(edge): "TransferQueue, SimpleStorage" for edge in flow.edges}
    return Connection(submit, collect, data_paths, {"controller, storage units": time.perf_counter() - start})


def by_calls(workers: WorkerGroup, codec: Codec) -> Connection:
    """Pass references from call to call, without queues; the codec makes the data in the object store."""
    workers.start(codec=codec)
    flow, device = workers.sent_flow, workers.plan.device
    results, is_small = flow.edges_to(DRIVER), flow.query.bytes <= INLINED_BYTES

    def submit(query):
        data = codec.encode(query)
        # A small argument travels in the call, as Ray's users write it. A large one is put once for all readers.
        sent = {DRIVER: data if is_small else ray.put(data)}
        for task in flow.tasks:
            inputs = (sent[edge.source] for edge in flow.edges_to(task.name))
            sent[task.name] = workers.actors[task.actor].forward_step.remote(task.name, *inputs)
        return [sent[source] for source in flow.returns]

    def collect(references):
        return codec.decode_all(ray.get(references), results, device)

    # Ray keeps small messages in its calls and answers, and puts the others into the store.
    names = {True: "inlined in a call", False: "object store, reference"}
    return Connection(submit, collect, {str(edge): names[edge.bytes <= INLINED_BYTES] for edge in flow.edges})


TRANSPORTS = {
    "payload-queue": by_payload_queue,
    "driver-queue": by_driver_queue,
    "ref-queue": by_ref_queue,
    "by-value": by_value,
    "replay-buffer": partial(by_value, has_replay_buffer=True),
    "transfer-queue": by_transfer_queue,
    "refs": partial(by_calls, codec=HOST),  # tensors, which Ray pickles
    "bytes": partial(by_calls, codec=BYTES),  # Python bytes, which Ray does not pickle
    "numpy": partial(by_calls, codec=ARRAYS),  # numpy arrays, which Ray does not pickle and readers map
}
