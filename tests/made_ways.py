# SPDX-License-Identifier: Apache-2.0
"""Build the costs of a way that a simulation uses, with round numbers."""

from typing import Any

from dataflow.cluster.costs import WayCost
from dataflow.cluster.ways import Path

MB = 10**6


def make_way_cost(path: Path, **changes: Any) -> WayCost:
    """Return a cost with two copies of 1 MB in an iteration that sends it once and reads it once."""
    values: dict[str, Any] = {
        "path": path,
        "retains_memory": False,
        "configuration": "store refs",
        "machines": 3,
        "iteration_bytes": MB,
        "path_bytes": 2.0 * MB,
        "path_copies": 5.0 * MB,
        "copies": 2.0,
        "faults": 0.0,
        "fixed_seconds": 0.0,
        "smallest_bytes": MB,
    }
    return WayCost(**values | changes)
