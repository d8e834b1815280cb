"""Install the weights that arrive, serve them, and change them after each update."""

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

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        flow = endpoint.task_flow
        self.edges = {task: flow.edges_to(task) for task in endpoint.tasks
                      if any(edge.message.is_parameters for edge in flow.edges_to(task))}  # fmt: skip
        self.parameters = Parameters({task: [edge.message for edge in edges] for task, edges in self.edges.items()})
        # Memory that each task copies its inputs into. It belongs to the engine, so the endpoint does not copy.
        self.copies = {task: endpoint.copies.pop(task) for task in self.edges if task in endpoint.copies}
        self.write: Any = lambda received, edge, into: copy(received, into)
        if endpoint.plan.options.message == "indices":
            self.use_changes()
        self.begin = 0.0
        self.times = UpdateTimes()

    def use_changes(self) -> None:
        """--message indices: send what has changed, and write it into parameters that begin with version 0."""
        device, write_changes = self.endpoint.device, apply_changes
        self.write = lambda received, edge, into: write_changes(received, edge.message, into)
        for task, edges in self.edges.items():
            self.copies[task] = [[initial_parameters(edge.source, edge.message, device) for edge in edges]]
        for task, outbox in self.endpoint.outboxes.items():
            if outbox.message.is_parameters:
                outbox.convert_with(Changes(task, outbox.message, device))

    def received(self, task: str, inputs: Sequence[Any]) -> Sequence[Any]:
        """Serve these parameters: the copies of --copy-out, for which the engine stops, or what arrived itself."""
        self.begin = time.perf_counter()
        if task not in self.edges:
            return inputs
        check_inputs(inputs, self.endpoint.sent_flow.edges_to(task) if self.endpoint.plan.options.message == "indices"
                     else self.edges[task])  # fmt: skip
        if task in self.copies:
            self.parameters.stop_engine()
            copies = self.copies[task]
            copies.append(copies.pop(0))
            inputs = [self.write(*three) for three in zip(inputs, self.edges[task], copies[-1], strict=True)]
        self.times.stall_seconds += self.parameters.install(task, inputs)
        self.times.install_seconds += time.perf_counter() - self.begin
        return inputs

    def made(self, task: str) -> None:
        times, end = self.times, time.perf_counter()
        if not times.first_begin:
            times.first_begin, times.first_end = self.begin, end
        times.last_begin, times.last_end = self.begin, end

    def end_group(self, number: int) -> UpdateTimes:
        """Change the parameters that were sent, right after all acknowledgements; return the times of the update."""
        for outbox in self.endpoint.outboxes.values():
            # Readers of the sender's own memory still need it: its next version has another place.
            if outbox.message.is_parameters and (outbox.is_in_place or not self.endpoint.plan.expects_views):
                outbox.change_parameters(number)
        if self.parameters.failure:
            name, failure = self.endpoint.name, self.parameters.failure
            raise RunFailed(f"the thread that reads the parameters of {name} failed: {failure}")
        times, self.times = self.times, UpdateTimes()
        times.reads, times.torn_reads = self.parameters.reads, self.parameters.torn_reads
        return times
