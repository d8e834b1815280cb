# SPDX-License-Identifier: Apache-2.0
"""Keep what each way costs as copies and page faults, and turn that into the costs of a byte on a machine."""

from collections.abc import Sequence
from math import inf
from pathlib import Path as FilePath

import msgspec

from dataflow.cluster.hardware import NodeMachine
from dataflow.cluster.ways import ByteCosts, Path, Work
from dataflow.errors import RecordError
from dataflow.plan.options import RESULTS

FORECAST = RESULTS / "evidence" / "cluster.json"
# Copies of a message in memory, besides page faults. Ray pickles a tensor twice into new memory (a page fault per 4 KiB
# each, which are counted), and copies it into the store; a reader copies it twice into new memory.
STORE_SENDS = 3
STORE_READS = 2
# TCP: into the kernel, and out of it.
STREAM_COPIES = 1
MEMORY_RATE = 100e9  # bytes per second that all cores of a large machine copy: assumed


class WayCost(msgspec.Struct, frozen=True, kw_only=True):
    """What an iteration of the demo's flow costs on one node in one way, and how many bytes are on its longest path."""

    path: Path
    retains_memory: bool
    configuration: str  # that was measured
    machines: int  # that it was measured on
    iteration_bytes: int
    path_bytes: float  # that are sent and read one after the other
    copies: float  # of the bytes of the iteration
    faults: float
    fixed_seconds: float

    def byte_costs(self, machine: NodeMachine) -> ByteCosts:
        """Return what a byte of a message costs on a machine.

        Sending and reading a byte take the same time: both make two buffers of new memory. On the direct ways only the
        reader has page faults.
        """
        copying = self.copies * self.iteration_bytes / machine.pair_rate + self.fixed_seconds
        faults = self.faults * machine.fault_seconds
        all_seconds = (copying + faults) / self.path_bytes
        if self.path == Path.STREAM:
            sending = copying / self.path_bytes
            return ByteCosts(
                Work(sending, STREAM_COPIES), Work(all_seconds, STREAM_COPIES), Work(0.0, 0.0)
            )
        # Between nodes, the kernel copies a message once on each side.
        link = Work(1 / machine.pair_rate, STREAM_COPIES)
        return ByteCosts(Work(all_seconds, STORE_SENDS), Work(all_seconds, STORE_READS), link)

    @property
    def label(self) -> str:
        """Return the name of the way, as tables show it."""
        names = {"rdt gloo": "Ray Direct Transport (gloo)", "torch gloo": "collectives (gloo)"}
        return names.get(self.configuration.removesuffix(" --retain-memory"), self.path.value)


class LayoutCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The measured and the simulated time of an iteration on one layout of nodes."""

    layout: str
    flow: str
    configuration: str
    iteration_bytes: int
    nodes: int
    link_rate: float  # bytes per second, as set; 0 on one node
    runs: int
    measured_seconds: float
    simulated_seconds: float

    @property
    def error(self) -> float:
        """Return simulated / measured - 1."""
        return self.simulated_seconds / self.measured_seconds - 1


class ForecastFile(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of all ways, a machine as those of the campaigns, and the simulation beside measured layouts."""

    pair_rate: float  # bytes per second: the median of the machines of the campaigns
    fault_seconds: float
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
