# SPDX-License-Identifier: Apache-2.0
"""Collect the parts of each update of weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dataflow.records.schema import Run


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

    # Of the slowest sender: from its first message to the handing over of its last.
    publish_seconds: list[float] = []
    # From the handing over of the first message to the arrival of the last.
    transfer_seconds: list[float] = []
    # Of the slowest receiver.
    install_seconds: list[float] = []
    # Of the receiver whose parameters could not be read for the longest time.
    stall_seconds: list[float] = []
    # Of served parameters, by a thread of each receiver, the untimed updates included.
    reads: int = 0
    torn_reads: int = 0  # of them, those that found two versions


def updates_of(run: Run) -> Updates:
    return msgspec.convert(run.measured["weights"], Updates)


def collect_updates(
    plan: Any,
    groups: Sequence[tuple[Mapping[str, UpdateTimes], bool]],
    to_driver_clock: Callable[[str, float], float],
) -> tuple[Updates, str | None]:
    """Return the timed updates, and why the run has failed: a read of served parameters found two versions.

    `groups` has the times of each update by worker, and whether it was timed. `to_driver_clock` returns the seconds of
    the driver's clock for a worker and the seconds of its own.
    """
    flow = plan.task_flow
    updates = Updates()
    edges = [edge for edge in flow.edges if edge.message.is_parameters]
    senders = {flow.actor(edge.source) for edge in edges}
    receivers = {flow.actor(edge.reader) for edge in edges}
    for times, is_timed in groups:
        if not is_timed:
            continue
        publish = [times[name].last_end - times[name].first_begin for name in senders]
        sent = [to_driver_clock(name, times[name].first_end) for name in senders]
        arrived = [to_driver_clock(name, times[name].last_begin) for name in receivers]
        install = [times[name].install_seconds for name in receivers]
        stall = [times[name].stall_seconds for name in receivers]
        updates.publish_seconds.append(max(publish))
        updates.transfer_seconds.append(max(arrived) - min(sent))
        updates.install_seconds.append(max(install))
        updates.stall_seconds.append(max(stall))
    last, _ = groups[-1]  # reads are counted from the first update on
    updates.reads = sum(last[name].reads for name in receivers)
    updates.torn_reads = sum(last[name].torn_reads for name in receivers)
    if not updates.torn_reads:
        return updates, None
    count = f"{updates.torn_reads} of {updates.reads} reads of served parameters found two versions"
    return (
        updates,
        f"{count}: this transport writes into memory that is still read: give --copy-out",
    )
