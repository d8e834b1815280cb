# SPDX-License-Identifier: Apache-2.0
"""verl's TransferQueue: actors put rows into its storage and get them from there."""

import os
import time
import uuid

import ray
import torch

from dataflow.endpoints.actor import Actor
from dataflow.flows.flow import DRIVER
from dataflow.workers.worker_group import Connection, WorkerGroup

PARTITION = "iterations"
FLAT = "flat"


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
    """Do as verl with TransferQueue: actors put and get rows in its storage, and calls carry their metadata.

    Raise Ray's error if an actor cannot be constructed.
    """
    os.environ["TQ_LOGGING_LEVEL"] = "ERROR"  # of all processes that Ray starts, too
    import transfer_queue  # `make peers` installs it

    start = time.perf_counter()
    transfer_queue.init()
    workers.start(TransferQueueActor)
    flow = workers.sent_flow
    actors = workers.actors

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
    return Connection(
        submit,
        collect,
        data_paths,
        setup_seconds={"controller, storage units": time.perf_counter() - start},
    )


TRANSPORTS = {"transfer-queue": by_transfer_queue}
