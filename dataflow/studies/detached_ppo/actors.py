# SPDX-License-Identifier: Apache-2.0
"""Define the actors of ColossalAI's detached PPO without their computation: calls carry messages, and start tasks.

hpcaitech/ColossalAI at b5f056636, applications/Chat/coati/ray: experience_maker_holder.py, detached_trainer_base.py and
detached_replay_buffer.py.
"""

from functools import partial
from typing import Any

import ray
import torch
from ray.util.queue import Queue

from dataflow.endpoints.actor import Actor
from dataflow.endpoints.tensors import HOST
from dataflow.flows.flow import DRIVER
from dataflow.flows.message import ACKNOWLEDGEMENT
from dataflow.workers.worker_group import Connection, WorkerGroup

BUFFER_LIMIT = 16  # batches in the replay buffer of a trainer


class CallingActor(Actor):
    """Run a task when calls have brought all its messages, and call its readers with the result."""

    def join(self, actors, has_replay_buffer):
        """Get the handles of all actors by name, before the first message."""
        self.actors = actors
        # Task -> messages that have arrived for it, by their source.
        self.arrived: dict[str, dict[str, Any]] = {task: {} for task in self.tasks}
        self.buffer: Any = Queue(BUFFER_LIMIT) if has_replay_buffer else None
        self.edges = {edge.source: edge for edge in self.task_flow.edges_to_actor(self.name)}

    def call(self, task, source, message):
        """Take a message, and with the last one of a task, run it and all that follows.

        Return the messages for the driver by task, and the calls that were made, for whose ends it does not wait. Both
        are empty before the last message.
        """
        form = self.edges[source].message
        if self.buffer is not None and form != ACKNOWLEDGEMENT and not form.is_parameters:
            self.buffer.put(to_batch(message, form))
            message = to_items(self.buffer.get(), form)
        edges = self.sent_flow.edges_to(task)
        arrived = self.arrived[task]
        arrived[source] = message
        if len(arrived) < len(edges):
            return {}, []
        messages = [arrived.pop(edge.source) for edge in edges]
        return self.run_and_call(task, *messages)

    def run_and_call(self, task, *messages):
        """Run a task, and all that follows on this actor, and call the readers of the results without waiting for them.

        Return the messages for the driver by task, and the calls that were made.
        """
        message = self.forward_step(task, *messages)
        flow = self.sent_flow
        results = {task: message} if task in flow.returns else {}
        readers = [edge.reader for edge in flow.edges_from(task) if edge.reader != DRIVER]
        calls = []
        for reader in readers:
            actor = self.actors[flow.actor(reader)]
            calls.append(actor.call.remote(reader, task, message))
        for follower in self.followers[task]:
            more_results, more_calls = self.run_and_call(follower)
            results = results | more_results
            calls = calls + more_calls
        return results, calls


def to_batch(payload, message):
    """Return one tensor instead of each list of samples of equal shape, as ColossalAI's trainers make a batch."""
    return map_lists(torch.stack, payload, message)


def to_items(batch, message):
    """Return a list of samples instead of each tensor that `to_batch` has made."""
    return map_lists(lambda tensor: [*tensor.unbind()], batch, message)


def map_lists(function, payload, message):
    """Return the payload with `function(samples)` in place of the samples of each field of equal shapes."""
    if not isinstance(payload, dict):  # flat, or --message packed
        return payload
    names = []
    for field in message.fields:
        has_equal_shapes = len({*field.lengths}) == 1
        if has_equal_shapes and not field.is_python:
            names.append(field.name)
    return payload | {name: function(payload[name]) for name in names}


def by_value(workers: WorkerGroup, has_replay_buffer: bool = False) -> Connection:
    """Do as ColossalAI: a sender calls each of its readers with the payload itself.

    With `has_replay_buffer`, a reader puts experience into a queue and takes it out again. Raise Ray's error if an
    actor cannot be constructed.
    """
    workers.start(CallingActor, codec=HOST)
    flow = workers.sent_flow
    actors = workers.actors
    ray.get([actor.join.remote(actors, has_replay_buffer) for actor in actors.values()])

    def submit(query):
        calls = []
        for edge in flow.edges_from(DRIVER):
            actor = actors[flow.actor(edge.reader)]
            calls.append(actor.call.remote(edge.reader, DRIVER, HOST.encode(query)))
        return calls

    def collect(calls):
        results: dict = {}
        while calls:
            answers = ray.get(calls)
            calls = []
            for more_results, more_calls in answers:
                results |= more_results
                calls += more_calls
        received = [results[source] for source in flow.returns]
        return HOST.decode_all(received, flow.edges_to(DRIVER), workers.plan.device)

    data_paths = {str(edge): "argument of a call" for edge in flow.edges}
    return Connection(submit, collect, data_paths)


TRANSPORTS = {"by-value": by_value, "replay-buffer": partial(by_value, has_replay_buffer=True)}
