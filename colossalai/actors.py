"""Define the actors of ColossalAI's detached PPO without their computation: calls carry messages, and start tasks.

hpcaitech/ColossalAI at b5f056636, applications/Chat/coati/ray: experience_maker_holder.py, detached_trainer_base.py and
detached_replay_buffer.py. Its makers do not wait for trainers. With `has_replay_buffer`, these do not wait either.
"""

import queue
import threading
import time
from collections import Counter
from typing import Any

import ray
import torch
from ray.util.queue import Queue

from common.endpoints import tensors
from common.endpoints.actor import Actor
from common.endpoints.inbox import Inbox, Views
from common.errors import RunFailed
from common.flows.flow import DRIVER
from common.units import format_bytes

BUFFER_LIMIT = 16  # batches in the replay buffer of a trainer
MAX_OPEN_CALLS = 2  # of a maker that waits for its trainers
MAX_WAITING_BYTES = 2**29  # of the calls of a maker that does not wait
CHECKED_STEP = 7  # every seventh batch is verified completely; odd, because makers have two payloads


class CallingActor(Actor):
    """Run a task when calls have brought all its messages, and call its readers with the result."""

    threads = ("receive",)  # for calls, while another one makes or trains

    def join(self, actors, has_replay_buffer):
        self.actors, self.has_replay_buffer = actors, has_replay_buffer
        self.arrived: dict[str, dict[str, Any]] = {task: {} for task in self.tasks}
        self.buffer = Queue(BUFFER_LIMIT) if has_replay_buffer else queue.Queue(BUFFER_LIMIT)
        self.lock, self.locked_at, self.version = threading.Lock(), 0.0, 0
        self.sent_at, self.consumed, self.stall_seconds = [], [], []
        self.edges = {edge.source: edge for edge in self.task_flow.edges_to_actor(self.worker.actor)}
        self.streams: dict[str, Inbox] = {}
        self.wrong: Counter[str] = Counter()

    def call(self, task, source, message):
        """Take a message, and with the last one of a task, run it and all that follows.

        Return the messages for the driver by task, and the calls that were made.
        """
        if self.has_replay_buffer and self.edges[source].message.is_experience:
            self.buffer.put(to_batch(message, self.edges[source].message))
            message = to_items(self.buffer.get(), self.edges[source].message)
        edges, arrived = self.sent_flow.edges_to(task), self.arrived[task]
        arrived[source] = message
        if len(arrived) < len(edges):
            return {}, []
        return self.run_and_call(task, *(arrived.pop(edge.source) for edge in edges))

    def run_and_call(self, task, *messages):
        message, flow = self.forward_step(task, *messages), self.sent_flow
        results = {task: message} if task in flow.returns else {}
        readers = [edge.reader for edge in flow.edges_from(task) if edge.reader != DRIVER]
        calls = [self.actors[flow.actor(reader)].call.remote(reader, task, message) for reader in readers]
        for follower in self.followers[task]:
            more_results, more_calls = self.run_and_call(follower)
            results, calls = results | more_results, calls + more_calls
        return results, calls

    def run_freely(self, number, deadline):
        """Make or train at this actor's own speed until the deadline, beginning with this sequence number."""
        makes = [task for task in self.tasks if self.task_flow.message(task).is_experience]
        if makes:
            self.make(makes, number, deadline)
        else:
            self.train(number, deadline)

    def make(self, tasks, number, deadline):
        """Send batches to the trainers. If buffers are full, wait; with a replay buffer, let calls wait."""
        waiting, is_too_much, batch_bytes = (
            [],
            False,
            max(self.task_flow.message(task).serialised_bytes for task in tasks),
        )
        while time.perf_counter() < deadline:
            with self.lock:
                version = self.version
                self.compute(self.model_times.get(self.name, 0))
                messages = {task: self.codec.encode(self.make_payload(number, task)) for task in tasks}
            for task, message in messages.items():
                (edge,) = self.sent_flow.edges_from(task)
                self.sent_at.append(time.perf_counter())
                waiting.append(self.actors[edge.reader].append.remote(task, version, message))
            number += 1
            done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0)
            if self.has_replay_buffer:
                is_too_much = len(waiting) > 1 and len(waiting) * batch_bytes > MAX_WAITING_BYTES
            elif len(waiting) > MAX_OPEN_CALLS:
                left = max(0.0, deadline - time.perf_counter())
                more, waiting = ray.wait(waiting, num_returns=len(waiting) - MAX_OPEN_CALLS, timeout=left)
                done, is_too_much = done + more, False
            ray.get(done)  # raises what a trainer has raised
            if is_too_much:
                raise RunFailed(
                    f"{len(waiting)} batches ({format_bytes(len(waiting) * batch_bytes)}) wait for trainers, which are "
                    "slower than this maker: give --transport by-value, whose makers wait"
                )

    @ray.method(concurrency_group="receive")
    def append(self, source, version, message):
        """Put a batch into the replay buffer; wait while it is full."""
        batch = to_batch(message, self.edges[source].message) if self.has_replay_buffer else message
        self.buffer.put((source, version, batch))

    def train(self, number, deadline):
        """Take batches from the replay buffer, and send new weights after every --update-steps of them."""
        edges = self.edges.items()
        self.streams = {source: Inbox((edge,), self.plan.device, 1, lambda _: True) for source, edge in edges}
        for stream in self.streams.values():
            stream.last = stream.verified = number - 1
        (task,) = self.tasks
        while (left := deadline - time.perf_counter()) > 0:
            try:
                source, version, message = self.buffer.get(timeout=left)
            except queue.Empty:
                break
            edge = self.edges[source]
            if self.has_replay_buffer:
                message = to_items(message, edge.message)
            (payload,) = self.codec.decode_all([message], [edge], self.device)
            self.streams[source].take([tensors.unpack(payload, edge.message) if self.packed else payload])
            self.compute(self.model_times.get(self.name, 0))
            staleness = self.version - version if self.task_flow.message(task).is_parameters else None
            self.consumed.append((time.perf_counter(), source, staleness))
            if len(self.consumed) % CHECKED_STEP == 0:
                self.verify_streams()
            if len(self.consumed) % self.plan.options.update_steps == 0:
                self.version += 1
                if self.task_flow.message(task).is_parameters:
                    self.update_makers(task, number)
                    number += 1

    def update_makers(self, task, number):
        """Send the weights to the makers. As in ColossalAI's code, each maker stops when the update begins."""
        edges, data = self.sent_flow.edges_from(task), self.codec.encode(self.make_payload(number, task))
        makers = [(self.actors[self.sent_flow.actor(edge.reader)], edge.reader) for edge in edges]
        if self.has_replay_buffer:
            ray.get([maker.stop_making.remote() for maker, _ in makers])
        ray.get([maker.load_weights.remote(reader, self.version, data) for maker, reader in makers])
        self.outboxes[task].change_parameters(number)

    @ray.method(concurrency_group="receive")
    def stop_making(self):
        self.lock.acquire()
        self.locked_at = time.perf_counter()

    @ray.method(concurrency_group="receive")
    def load_weights(self, task, version, data):
        if not self.locked_at:
            self.stop_making()
        self.receive(self.codec.decode_all([data], self.sent_flow.edges_to(task), self.device), task)
        self.streams[task], self.version = self.inboxes[task], version
        self.stall_seconds.append(time.perf_counter() - self.locked_at)
        self.locked_at = 0.0
        self.lock.release()

    def verify_streams(self):
        for stream in self.streams.values():
            stream.verify(stream.verified + 1, stream.last, self.digests, self.wrong, Views())

    def report(self):
        """Return when batches were sent and consumed, the stalls, and the wrong bytes by name."""
        self.verify_streams()
        return self.sent_at, self.consumed, self.stall_seconds, {name: n for name, n in self.wrong.items() if n}


def to_batch(payload, message):
    """Return one tensor instead of each list of samples of equal shape, as ColossalAI's trainers make a batch."""
    return map_lists(torch.stack, payload, message)


def to_items(batch, message):
    return map_lists(lambda tensor: [*tensor.unbind()], batch, message)


def map_lists(function, payload, message):
    if not isinstance(payload, dict):  # flat, or --message packed
        return payload
    names = [field.name for field in message.fields if len({*field.lengths}) == 1 and not field.is_python]
    return payload | {name: function(payload[name]) for name in names}
