"""Define the report of the driver process, which the monitor reads while the run goes on."""

import os
from pathlib import Path
from typing import Any

import msgspec

from dataflow.records.schema import Run


class DriverReport(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The file "report" of the run folder: what the driver process knows. It replaces the file in one step."""

    run: Run  # without the times of the iterations, which are in the progress table
    environment: dict[str, Any] = {}
    other_environments: list[dict[str, Any]] = []  # of the other nodes, from the first on; empty without actors
    failure: str = ""  # why the iterations ended early
    actor_raised: bool = False  # the failure is an error that an actor raised
    finished: bool = False

    def write(self, folder: Path) -> None:
        partial = folder / "report.partial"
        partial.write_bytes(msgspec.json.encode(self))
        os.replace(partial, folder / "report")
