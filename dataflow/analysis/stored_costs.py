# SPDX-License-Identifier: Apache-2.0
"""Keep what configurations cost, as it was fitted to the campaigns, so that a prediction takes no second.

python3 -m dataflow.analysis.stored_costs      writes results/evidence/costs.json anew (make publish)
"""

from math import isfinite
from pathlib import Path

import msgspec

from common.record import replace
from dataflow.analysis.cost_model import Cost, MachineCosts
from dataflow.analysis.result import Result
from dataflow.catalogue.catalogue import (
    TRANSPORTS,
    flags_of_name,
    later_messages_overwrite,
    producer_writes_in_place,
)
from dataflow.errors import RecordError
from dataflow.plan.options import CAMPAIGNS, RESULTS

COSTS = RESULTS / "evidence" / "costs.json"
DIGITS = 4  # of a stored number: more would differ from one computer to the next


class StoredCost(msgspec.Struct, frozen=True, kw_only=True):
    """What an iteration of a configuration costs, by the mean of its times; its table and flow name the messages.

    `fixed_seconds` are what copies and page faults do not explain of these messages. Why is not known. They are taken
    as proportional to the bytes, because they were only seen with large messages.
    """

    configuration: str
    table: str
    flow: str
    iteration_bytes: int
    readers_own_a_copy: bool
    copies: float
    faults: float
    fixed_seconds: float
    error: float  # rms over machines of log(predicted / measured)
    factor: float | None  # multiplies and divides a prediction for 95 %; None: it is not known
    machines: int
    # By one thread, without fixed seconds; None: those by all cores predict left-out machines better.
    thread_copies: float | None = None

    @property
    def work(self) -> tuple[bool, bool, bool]:
        """Return whether readers own a copy, later messages overwrite it, and the producer writes in place.

        Times are divided only if all three are equal (as Result.work). For an unknown transport, such as that of a
        study whose folder was deleted, it assumes neither of the last two.
        """
        runtime, name, *_ = self.configuration.split()
        transport = TRANSPORTS.get(f"{runtime} {name}")
        if transport is None:
            return self.readers_own_a_copy, False, False
        flags = flags_of_name(self.configuration)
        is_packed = flags.get("message") == "packed"
        is_overwritten = self.readers_own_a_copy and later_messages_overwrite(transport, flags)
        writes_in_place = not is_packed and producer_writes_in_place(transport, flags)
        return self.readers_own_a_copy, is_overwritten, writes_in_place

    def seconds_on(self, costs: MachineCosts, size: int, copies: float | None = None) -> float:
        """Return the seconds of an iteration of so many bytes, with as many page faults and fixed seconds per byte.

        `copies`: in place of those by all cores.
        """
        counted = self.copies if copies is None else copies
        scale = size / self.iteration_bytes
        besides = self.faults * costs.fault_seconds + self.fixed_seconds
        return counted * costs.copy_seconds + besides * scale


class FittedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the campaigns: what all its cores together take to copy a byte, and what a page fault takes."""

    boot: str
    byte_seconds: float
    fault_seconds: float


class Unexplained(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration without a stored cost, because copies and page faults do not explain its times."""

    configuration: str
    table: str
    flow: str
    error: float  # rms over machines of log(predicted / measured)


class CostFile(msgspec.Struct, frozen=True, kw_only=True):
    """The costs, and the campaigns and their machines, to which they were fitted."""

    campaigns: list[str]
    machines: list[FittedMachine]
    costs: list[StoredCost]
    unexplained: list[Unexplained]


def fit_costs(folder: Path = CAMPAIGNS) -> CostFile:
    """Return the costs of all configurations that campaigns of at least two machines explain, and name the others."""
    from dataflow.analysis.campaigns import load_campaigns  # these imports take time
    from dataflow.analysis.machine_costs import fit_campaigns, rates_by_boot

    campaigns = load_campaigns(folder)
    costs = []
    unexplained = []
    for fitted in fit_campaigns(campaigns):
        if fitted.of_mean.is_explained:
            costs.append(store(fitted.result, fitted.of_mean))
        else:
            unexplained.append(refuse(fitted.result, fitted.of_mean))
    machines = []
    for boot, rates in rates_by_boot(campaigns).items():
        machine = FittedMachine(
            boot=boot,
            byte_seconds=shorten(rates.byte_seconds),
            fault_seconds=shorten(rates.fault_seconds),
        )
        machines.append(machine)
    return CostFile(campaigns=[*campaigns], machines=machines, costs=costs, unexplained=unexplained)


def refuse(result: Result, cost: Cost) -> Unexplained:
    return Unexplained(
        configuration=result.label,
        table=result.table,
        flow=result.workload.flow,
        error=shorten(cost.error),
    )


def store(result: Result, cost: Cost) -> StoredCost:
    return StoredCost(
        configuration=result.label,
        table=result.table,
        flow=result.workload.flow,
        iteration_bytes=result.workload.bytes_per_iteration,
        readers_own_a_copy=result.readers_own_a_copy,
        copies=shorten(cost.copies),
        faults=shorten(cost.faults),
        fixed_seconds=shorten(cost.fixed_seconds),
        error=shorten(cost.error),
        factor=shorten(cost.factor) if isfinite(cost.factor) else None,
        machines=cost.machines,
        thread_copies=None if cost.thread_copies is None else shorten(cost.thread_copies),
    )


def shorten(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def load_costs(path: Path = COSTS) -> CostFile:
    """Return the stored costs; raise RecordError if the file cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=CostFile)
    except (OSError, msgspec.DecodeError) as error:
        raise RecordError(
            f"{path} has no costs of configurations ({error}): make publish"
        ) from None


def main() -> None:
    """Write the file anew."""
    text = msgspec.json.format(msgspec.json.encode(fit_costs()), indent=1)
    replace(COSTS, text + b"\n")


if __name__ == "__main__":
    main()
