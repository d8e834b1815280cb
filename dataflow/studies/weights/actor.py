"""Install the weights that arrive, and serve them."""

import time
from collections.abc import Sequence
from typing import Any

from dataflow.endpoints.tensors import check_inputs, copy
from dataflow.errors import RunFailed
from dataflow.studies import Part
from dataflow.studies.weights.deltas import Changes, apply_changes, initial_parameters
from dataflow.studies.weights.parameters import Parameters
from dataflow.studies.weights.updates import UpdateTimes


class WeightsPart(Part):
    name = "weights"
    traced = {"write": "copy"}  # noqa: RUF012

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        options, flow, self.times = endpoint.plan.options, endpoint.task_flow, UpdateTimes()
        self.edges = {task: flow.edges_to(task) for task in endpoint.tasks
                      if any(edge.message.is_parameters for edge in flow.edges_to(task))}  # fmt: skip
        self.parameters = Parameters({task: [edge.message for edge in edges] for task, edges in self.edges.items()})
        # Memory that each task copies its inputs into. It belongs to the engine, so the endpoint does not copy.
        self.copies = {task: endpoint.copies.pop(task) for task in self.edges if task in endpoint.copies}
        self.has_changes = options.message == "indices"
        self.arriving = {task: endpoint.sent_flow.edges_to(task) if self.has_changes else edges
                         for task, edges in self.edges.items()}  # fmt: skip
        if self.has_changes:
            self.use_changes()
        fault = (options.inject or "").split(":")
        self.tears = fault[-1] == "tear" and fault[0] in self.edges  # --inject: write without stopping the engine

    def use_changes(self) -> None:
        """--message indices: send what has changed, and write it into parameters that begin with version 0."""
        device = self.endpoint.device
        for task, edges in self.edges.items():
            self.copies[task] = [[initial_parameters(edge.source, edge.message, device) for edge in edges]]
        for task, outbox in self.endpoint.outboxes.items():
            if outbox.message.is_parameters:
                outbox.convert_with(Changes(task, outbox.message, device))

    def received(self, task: str, inputs: Sequence[Any]) -> Sequence[Any]:
        """Serve these parameters: the copies of --copy-out, for which the engine stops, or what arrived itself."""
        if task not in self.edges:
            return inputs
        check_inputs(inputs, self.arriving[task])
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
        copies, edges = self.copies[task], self.edges[task]
        copies.append(copies.pop(0))
        if not self.has_changes:
            return [copy(received, into) for received, into in zip(inputs, copies[-1], strict=True)]
        triples = zip(inputs, edges, copies[-1], strict=True)
        return [apply_changes(received, edge.message, into) for received, edge, into in triples]

    def made(self, task: str) -> None:
        times, begin, end = self.times, self.endpoint.begin, time.perf_counter()
        if not times.first_begin:
            times.first_begin, times.first_end = begin, end
        times.last_begin, times.last_end = begin, end

    def end_group(self, number: int) -> UpdateTimes:
        """Return the times of the update."""
        if self.parameters.failure:
            name, failure = self.endpoint.name, self.parameters.failure
            raise RunFailed(f"the thread that reads the parameters of {name} failed: {failure}")
        times, self.times = self.times, UpdateTimes()
        times.reads, times.torn_reads = self.parameters.reads, self.parameters.torn_reads
        return times
