"""A row that is to be measured among others, its record, and what an earlier call finished of it."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.analysis.results import Result
from common.errors import UsageError, Waived
from common.flow.catalogue import MICROBENCHMARKS
from common.plan.plan import Plan
from common.record import files
from common.record.environment import MACHINE_KEYS, describe_environment
from common.record.schema import Record
from common.run.supervisor import add_waived

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
        runs = [run for run in found.runs if not (run.status == "failed" and CUT_OFF.match(run.reason or ""))]
        found.runs = runs[: len(runs) // whole * whole]  # of a sweep only whole turns; the last one may be none
        self.record, self.finished = found, len(found.runs) // whole

    @property
    def label(self) -> str:
        flow = self.record.row.flow
        return Result((self.record,)).name + (f", {flow}" if flow in MICROBENCHMARKS else "")
