# SPDX-License-Identifier: Apache-2.0
"""Install the weights that arrive, and serve them; with --message indices, send only those that an update has changed.

The sender compares its parameters with a copy of the version before, and sends the values that have changed and their
positions as int32. The receivers write the values into their parameters. All begin with version 0, as if they had
loaded the same checkpoint.
"""

import time
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import torch

from dataflow.endpoints.payload import encode_number, make_field, number_part, raw_bytes
from dataflow.endpoints.tensors import Payload, assemble, check_inputs, copy, flat_items, from_array
from dataflow.errors import RunFailed
from dataflow.flows.flow import Edge
from dataflow.flows.message import VALUES, Message
from dataflow.studies.weights.flow import INDICES
from dataflow.studies.weights.parameters import Parameters
from dataflow.studies.weights.updates import UpdateTimes
from dataflow.study import Part


class WeightsPart(Part):
    name = "weights"
    traced = {"write": "copy"}  # noqa: RUF012

    def __init__(self, endpoint: Any) -> None:
        """Take over the copies of --copy-out. With --message indices, send only what changes."""
        super().__init__(endpoint)
        self.times = UpdateTimes()
        self.edges = parameter_edges(endpoint)
        messages = {}
        for task, edges in self.edges.items():
            messages[task] = [edge.message for edge in edges]
        self.parameters = Parameters(messages)
        # Memory that each task copies its inputs into. It belongs to the engine, so the endpoint does not copy.
        self.copies = {}
        for task in self.edges:
            if task in endpoint.copies:
                self.copies[task] = endpoint.copies.pop(task)
        options = endpoint.plan.options
        self.has_changes = options.message == "indices"
        if self.has_changes:
            self.use_changes(endpoint.device)
        fault = (options.inject or "").split(":")
        # --inject: write without stopping the engine.
        self.tears = fault[-1] == "tear" and fault[0] in self.edges

    def use_changes(self, device: Any) -> None:
        """--message indices: send what has changed, and write it into parameters that begin with version 0."""
        for task, edges in self.edges.items():
            memory = [initial_parameters(edge.source, edge.message, device) for edge in edges]
            self.copies[task] = cycle([memory])
        for task, outbox in self.endpoint.outboxes.items():
            if outbox.message.is_parameters:
                outbox.convert_with(Changes(task, outbox.message, device))

    def received(self, task: str, inputs: Sequence[Any]) -> Sequence[Any]:
        """Serve these parameters: the copies of --copy-out, for which the engine stops, or what arrived itself."""
        if task not in self.edges:
            return inputs
        edges = self.endpoint.sent_flow.edges_to(task) if self.has_changes else self.edges[task]
        check_inputs(inputs, edges)
        begin = time.perf_counter()
        if task in self.copies:
            if not self.tears:
                self.parameters.stop_engine()
            inputs = self.write(task, inputs)
        self.times.stall_seconds += self.parameters.install(task, inputs)
        self.times.install_seconds += time.perf_counter() - begin
        return inputs

    def write(self, task: str, inputs: Sequence[Any]) -> list[Any]:
        """Return the parameters after they were written into the memory of the engine."""
        edges = self.edges[task]
        memory = next(self.copies[task])
        if not self.has_changes:
            pairs = zip(inputs, memory, strict=True)
            return [copy(received, into) for received, into in pairs]
        triples = zip(inputs, edges, memory, strict=True)
        return [apply_changes(received, edge.message, into) for received, edge, into in triples]

    def made(self, task: str) -> None:
        """Take note of the first and the last message of an update."""
        times = self.times
        begin = self.endpoint.begin
        end = time.perf_counter()
        if not times.first_begin:
            times.first_begin = begin
            times.first_end = end
        times.last_begin = begin
        times.last_end = end

    def end_group(self, number: int) -> UpdateTimes:
        """Return the times of the update; raise RunFailed if the thread that reads the parameters has failed."""
        failure = self.parameters.failure
        if failure:
            name = self.endpoint.name
            raise RunFailed(f"the thread that reads the parameters of {name} failed: {failure}")
        times = self.times
        self.times = UpdateTimes()
        times.reads = self.parameters.reads
        times.torn_reads = self.parameters.torn_reads
        return times


def parameter_edges(endpoint: Any) -> dict[str, tuple[Edge, ...]]:
    """Return the edges of each task of this worker that reads parameters."""
    reading = {}
    for task in endpoint.tasks:
        edges = endpoint.task_flow.edges_to(task)
        if any(edge.message.is_parameters for edge in edges):
            reading[task] = edges
    return reading


def initial_parameters(sender: str, message: Message, device: Any) -> Payload:
    """Return version 0 of all parameters of a message."""
    fields = []
    for field in message.fields:
        (array,) = make_field(field, sender, slot=0)
        part = number_part(field)
        encoded = encode_number(0)[part]
        items = np.frombuffer(raw_bytes(array), np.uint8)
        items[: len(encoded)] = list(encoded)
        tensor = from_array(array, field.dtype).to(device)
        fields.append([tensor])
    return assemble(message, fields)


class Changes:
    """Find what has changed since the last call. This needs a copy of all parameters."""

    def __init__(self, sender: str, message: Message, device: Any) -> None:
        self.before = initial_parameters(sender, message, device)

    def __call__(self, payload: Payload, message: Message) -> Payload:
        """Return the values that have changed and their indices, and keep the values for the next call."""
        sent = {}
        for field in message.fields:
            new = flat_items(payload, field)
            old = flat_items(self.before, field)
            indices = (new != old).nonzero().squeeze(1)
            values = new[indices]
            old[indices] = values
            dtype = getattr(torch, field.dtype)
            sent[field.name + VALUES] = values.view(dtype)
            sent[field.name + INDICES] = indices.to(torch.int32)
        return sent


def apply_changes(received: Payload, message: Message, parameters: Payload) -> Payload:
    """Write the received values into the parameters, and return them."""
    for field in message.fields:
        items = flat_items(parameters, field)
        values = received[field.name + VALUES]
        indices = received[field.name + INDICES]
        items[indices.long()] = values.view(items.dtype)
    return parameters
