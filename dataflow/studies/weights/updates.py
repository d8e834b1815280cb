"""Collect the parts of each update of weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dataflow.records.schema import Run
from dataflow.studies import Collector


@dataclass
class UpdateTimes:
    """The work of one actor for one update, in seconds of the clock that all processes of a machine share."""

    first_begin: float = 0.0  # of the first task: its message had arrived
    first_end: float = 0.0  # its message was made, and the transport gets it now
    last_begin: float = 0.0
    last_end: float = 0.0
    install_seconds: float = 0.0  # of all tasks
    stall_seconds: float = 0.0
    reads: int = 0  # of the parameters that are served, since the first update
    torn_reads: int = 0


class Updates(msgspec.Struct, forbid_unknown_fields=True):
    """Parts of the timed updates of parameters, in order. With several messages per update they overlap."""

    publish_seconds: list[float] = []  # of the slowest sender: from its first message to the handing over of its last
    transfer_seconds: list[float] = []  # from the handing over of the first message to the arrival of the last
    install_seconds: list[float] = []  # of the slowest receiver
    stall_seconds: list[float] = []  # of the receiver whose parameters could not be read for the longest time
    reads: int = 0  # of served parameters, by a thread of each receiver, the untimed updates included
    torn_reads: int = 0  # of them, those that found two versions


def updates_of(run: Run) -> Updates:
    return msgspec.convert(run.measured["weights"], Updates)


class UpdateCollector(Collector):
    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        flow, self.updates = plan.task_flow, Updates()
        edges = [edge for edge in flow.edges if edge.message.is_parameters]
        sending, receiving = {flow.actor(edge.source) for edge in edges}, {flow.actor(edge.reader) for edge in edges}
        self.senders = [name for name in plan.worker_names if name in sending]
        self.receivers = [name for name in plan.worker_names if name in receiving]
        self.timed: list[Mapping[str, UpdateTimes]] = []

    def add(self, values: Mapping[str, UpdateTimes], is_timed: bool) -> Mapping[str, int]:
        senders, receivers = ([values[name] for name in names] for names in (self.senders, self.receivers))
        updates = self.updates
        updates.reads = sum(receiver.reads for receiver in receivers)
        updates.torn_reads = sum(receiver.torn_reads for receiver in receivers)
        if is_timed:
            self.timed.append(values)
            updates.publish_seconds.append(max(sender.last_end - sender.first_begin for sender in senders))
            updates.install_seconds.append(max(receiver.install_seconds for receiver in receivers))
            updates.stall_seconds.append(max(receiver.stall_seconds for receiver in receivers))
        return {}

    def result(self, driver_seconds: Callable[[str, float], float]) -> tuple[Updates, str | None]:
        """Return the updates; a run fails if a read of served parameters found two versions."""
        for times in self.timed:
            first_sent = min(driver_seconds(name, times[name].first_end) for name in self.senders)
            arrived = max(driver_seconds(name, times[name].last_begin) for name in self.receivers)
            self.updates.transfer_seconds.append(arrived - first_sent)
        if not self.updates.torn_reads:
            return self.updates, None
        count = f"{self.updates.torn_reads} of {self.updates.reads} reads of served parameters found two versions"
        return self.updates, f"{count}: this transport writes into memory that is still read: give --copy-out"
