# SPDX-License-Identifier: Apache-2.0
"""Keep what each way costs as copies, page faults and calls, and turn that into the costs of a message on a machine."""

from collections.abc import Sequence
from math import inf
from pathlib import Path as FilePath

import msgspec

from dataflow.cluster.hardware import NodeMachine
from dataflow.cluster.ways import Call, Path, SizedCost, WayCosts, Work
from dataflow.errors import RecordError
from dataflow.plan.options import RESULTS

FORECAST = RESULTS / "evidence" / "cluster.json"
# Copies of a message in memory, besides page faults, by Ray's code: it pickles a tensor twice into new memory (a page
# fault per 4 KiB each, which are counted), and copies it into the store; a reader copies it twice into new memory. The
# fitted time of copies is divided by them, so each also has its part of the serialisation.
STORE_SENDS = 3
STORE_READS = 2
# TCP: into the kernel, and out of it.
STREAM_COPIES = 1
COPIES = {
    Path.DRIVER: (STORE_SENDS, STORE_READS),
    Path.REFERENCES: (STORE_SENDS, STORE_READS),
    Path.STREAM: (STREAM_COPIES, STREAM_COPIES),
}
MEMORY_RATE = 100e9  # bytes per second that all cores of a large machine copy: assumed


class CallCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of Ray takes on the machine that has measured it, besides the bytes of its messages."""

    seconds: float
    core_seconds: float  # of all processes together
    submit_seconds: float  # of the driver's core, while it submits the call
    source: str  # the records that it comes from

    def to_call(self) -> Call:
        """Return the call, during which the driver's core is only busy while it submits."""
        return Call(
            submit_seconds=self.submit_seconds,
            start_seconds=self.seconds - self.submit_seconds,
            start_core_seconds=max(0.0, self.core_seconds - self.submit_seconds),
        )


class WayCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of a way take."""

    call: CallCost
    # Of a task that reads large messages; with Ray Direct Transport, of each of them.
    reading_call: CallCost


class SizedFaults(msgspec.Struct, frozen=True):
    """How many page faults a byte has that is sent, and one that is read, in messages of one size."""

    message_bytes: int
    faults: float  # per byte


class WayCost(msgspec.Struct, frozen=True, kw_only=True):
    """What an iteration of the demo's flow costs on one node in one way, and how many bytes are on its longest path.

    Copies are without the time of its calls.
    """

    path: Path
    retains_memory: bool
    configuration: str  # that was measured
    machines: int  # that it was measured on
    iteration_bytes: int
    path_bytes: float  # that are sent and read one after the other
    path_copies: float  # bytes that are copied one after the other, to send and to read these
    copies: float  # of the bytes of the iteration
    faults: float
    fixed_seconds: float
    smallest_bytes: int  # of the messages of the demo's flow
    # Of smaller messages, the smallest first. Empty: not known, so they have as many per byte as those of the demo.
    smaller: Sequence[SizedFaults] = ()
    calls: WayCalls | None = None  # None: without Ray

    def costs_on(self, machine: NodeMachine) -> WayCosts:
        """Return what messages and calls cost on a machine.

        A byte that is sent is copied more often than one that is read, and has as many page faults: both make two
        buffers of new memory. On the direct ways, sender and reader copy it at the same time, and only the reader has
        page faults.
        """
        copying = self.copies * self.iteration_bytes / machine.pair_rate + self.fixed_seconds
        copy = copying / self.path_copies
        faults = self.faults_on(machine)
        call = reading_call = None
        if self.calls is not None:
            call = self.calls.call.to_call()
            reading_call = self.calls.reading_call.to_call()
        sends, reads = COPIES[self.path]
        of_sender = [] if self.path == Path.STREAM else faults
        send = Work(sends * copy, sends, of_sender)
        read = Work(reads * copy, reads, faults)
        link = Work(0.0, 0.0)
        if self.path != Path.STREAM:
            # Between nodes, the kernel copies a message once on each side.
            link = Work(1 / machine.pair_rate, STREAM_COPIES)
        return WayCosts(send, read, link, call, reading_call)

    def faults_on(self, machine: NodeMachine) -> list[SizedCost]:
        """Return what page faults add to a byte on a machine, by the size of its message.

        From the smallest message of the demo on, a byte has as many as those of the demo.
        """
        of_demo = SizedFaults(self.smallest_bytes, self.faults / self.path_bytes)
        costs = []
        for item in [*self.smaller, of_demo]:
            seconds = item.faults * machine.fault_seconds
            costs.append(SizedCost(item.message_bytes, seconds))
        return costs

    def multiply_faults(self, factor: float) -> "WayCost":
        """Return a copy of this cost with its page faults multiplied, for messages of all sizes."""
        smaller = [SizedFaults(item.message_bytes, item.faults * factor) for item in self.smaller]
        return msgspec.structs.replace(self, faults=self.faults * factor, smaller=smaller)

    @property
    def label(self) -> str:
        """Return the name of the way, as tables show it."""
        names = {"rdt gloo": "Ray Direct Transport (gloo)", "torch gloo": "collectives (gloo)"}
        return names.get(self.configuration.removesuffix(" --retain-memory"), self.path.value)


class LayoutCheck(msgspec.Struct, frozen=True, kw_only=True):
    """An iteration on one layout of nodes: its measured and its simulated time, and its page faults."""

    layout: str
    flow: str
    configuration: str
    iteration_bytes: int
    nodes: int
    link_rate: float  # bytes per second, as set; 0 on one node
    runs: int
    measured_seconds: float
    simulated_seconds: float
    # Page faults per iteration, of all processes together.
    simulated_faults: float
    counted_faults: float | None  # None: unknown
    # Simulated with the counted page faults; None: they are unknown, or the simulation has none.
    seconds_with_counted_faults: float | None

    @property
    def error(self) -> float:
        """Return simulated / measured - 1 (0.2: it was simulated as 20 % too long)."""
        return self.simulated_seconds / self.measured_seconds - 1

    @property
    def error_with_counted_faults(self) -> float | None:
        """Return simulated / measured - 1 with the counted page faults; None if it was not simulated with them."""
        if self.seconds_with_counted_faults is None:
            return None
        return self.seconds_with_counted_faults / self.measured_seconds - 1


class ForecastFile(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of all ways, a machine as those of the campaigns, and the simulation beside measured layouts."""

    pair_rate: float  # bytes per second: the median of the machines of the campaigns
    fault_seconds: float
    call: CallCost  # of an actor, if messages are in the object store
    # What each of several calls at the same time adds: the driver's core is busy with a call for no longer.
    driver_seconds_at_most: float
    ways: Sequence[WayCost]
    checks: Sequence[LayoutCheck]


def typical_machine(stored: ForecastFile) -> NodeMachine:
    """Return a large machine whose threads are like those of the campaigns, with a core for each process."""
    return NodeMachine(stored.pair_rate, MEMORY_RATE, stored.fault_seconds, inf)


def load_forecast(path: FilePath = FORECAST) -> ForecastFile:
    """Return the stored costs; raise RecordError if the file cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ForecastFile)
    except (OSError, msgspec.DecodeError) as error:
        raise RecordError(f"{path} has no costs of ways ({error}): make publish") from None
