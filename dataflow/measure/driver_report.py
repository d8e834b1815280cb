# SPDX-License-Identifier: Apache-2.0
"""What the driver process tells the process that follows it: a file, because a process that hangs is not asked."""

from pathlib import Path
from typing import Any

import msgspec

from common.record import replace
from dataflow.records.schema import Run


class DriverReport(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The file "report" of the run folder: what the driver process knows. It replaces the file in one step."""

    run: Run  # without the times of the iterations, which are in the progress table
    # Of the nodes, the driver's first; empty for a node without actors.
    environments: list[dict[str, Any]] = []
    failure: str = ""  # why the iterations ended early
    actor_raised: bool = False  # the failure is an error that an actor raised
    finished: bool = False

    def write(self, folder: Path) -> None:
        replace(folder / "report", msgspec.json.encode(self))
