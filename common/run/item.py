"""A row that is to be measured among others, its record, and what an earlier call finished of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.analysis.expected import points_of
from common.analysis.results import Result
from common.errors import UsageError, Waived
from common.flow.catalogue import MICROBENCHMARKS
from common.plan.plan import Plan
from common.record import files
from common.record.environment import MACHINE_KEYS, describe_environment
from common.record.schema import Record
from common.run.supervisor import add_waived
from common.runtime.needs import resident_bytes
from common.text.screen import print_table
from common.text.tables import Column
from common.units import format_bytes

CUT_OFF = re.compile("interrupted|the run was killed")  # how a run that was not finished ends
# What no run of a row may differ in from the others, as far as can be told without torch.
CONTINUED = (*(key for key in MACHINE_KEYS if key != "nccl"), "git_commit")


def _asked(record: Record) -> tuple[Any, ...]:
    """What was asked for; the order of the rows is not."""
    arguments = {name: value for name, value in record.arguments.items() if name != "order_seed"}
    return record.row, record.sweep, record.warmup, arguments, [] if record.sweep else record.edges


@dataclass
class Item:
    """One row to be measured, and its record."""

    plan: Plan
    waived: Waived | None
    output: Path
    seconds: float  # that a run of it takes, about
    record: Record = field(init=False)
    finished: int = 0  # runs that an earlier call made

    def __post_init__(self) -> None:
        self.record = self.plan.record()
        if self.waived:
            add_waived(self.record, self.waived)

    def keep_finished(self) -> None:
        """--continue: the runs that an earlier call finished stay, and count, failed ones too.

        Raises:
            UsageError: what lies there is of something else.
        """
        found = files.load(self.output)
        found.row.layout.nodes = {}  # where actors were found to run
        if _asked(found) != _asked(self.record):
            raise UsageError(f"--continue: {self.output} was measured otherwise: give the flags of that call again")
        here, there = describe_environment(), found.environments.get("0", {})
        unlike = [key for key in CONTINUED if there and (here.get(key) or None) != (there.get(key) or None)]
        if unlike:
            raise UsageError(f"--continue: {self.output} was measured with another {unlike[0]}: measure all anew")
        whole = len(self.plan.options.points) if found.sweep else 1
        found.runs = [run for run in found.runs if not (run.status == "failed" and CUT_OFF.match(run.reason or ""))]
        self.record, self.finished = found, len(found.runs) // whole  # of a sweep whole turns; add_runs ends one

    @property
    def label(self) -> str:
        flow = self.record.row.flow
        there = f", {self.plan.checkout.name}" if self.plan.checkout else ""
        return Result((self.record,)).name + (f", {flow}" if flow in MICROBENCHMARKS else "") + there


def print_plans(items: Sequence[Item], runs: int) -> None:
    """--dry-run: what would be measured, what it takes, and how long."""
    for flow in {str(item.plan.asked.edges): item.plan.asked for item in items}.values():
        print(f"{flow.title}: {format_bytes(flow.bytes_per_trip)} a trip")
        for edge in flow.edges:
            print(f"  {edge!s:24} {format_bytes(edge.bytes):>10}")
    print_table(items, [
        Column("row", lambda item: item.label),
        Column("trips", lambda item: _trips(item.plan)),
        Column("memory", lambda item: format_bytes(_most_memory(item.plan))),
        Column("about", lambda item: f"{runs * item.seconds:.0f} s" if not item.waived else "-"),
        Column("", lambda item: f"waived: {item.waived}" if item.waived else "", words=True),
    ])  # fmt: skip
    print(
        f"about {minutes(runs * sum(item.seconds for item in items))} in all, by the bytes "
        "and the published records, on a machine like theirs; memory of payloads and messages, without Ray's own"
    )


def _most_memory(plan: Plan) -> int:
    return max(resident_bytes(point.row, point.options, point.flow) for point in points_of(plan))


def _trips(plan: Plan) -> str:
    options = plan.options
    return f"{options.duration:g} s of them" if options.duration else f"{options.iterations}"


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
