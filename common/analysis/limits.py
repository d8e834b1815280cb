"""What cannot be: rows that took less time than the copies that they are of."""

from collections.abc import Sequence

import numpy as np

from common.analysis.statistics import MINIMUM_RUNS
from common.record.rows import ROWS
from common.record.schema import RowKey, Run


def impossible(key: RowKey, runs: Sequence[Run]) -> str | None:
    """Why a row that copies cannot have taken so little, in one line; None where it can.

    A run is under its limit where its median trip took less than the fastest pass of its own ceiling, before or after
    the trips; where the catalogue says why the row may be above that ceiling, the passes by all cores count too. Its
    machine may have been slower while one run's ceiling was measured, so every run must be under, and fewer than
    MINIMUM_RUNS are only warned of (Result.above_ceiling).
    """
    if len(runs) < MINIMUM_RUNS or not all(run.payload_copied and run.seconds for run in runs):
        return None
    may = any(row.above_ceiling_because and (row.runtime, row.transport) == (key.runtime, key.transport)
              and row.flags.items() <= key.flags.items() for row in ROWS)  # fmt: skip
    shares = []
    for run in runs:
        passes = run.ceiling_before_seconds + run.ceiling_after_seconds + run.ceiling_all_cores_seconds * may
        shares.append(min(passes) / float(np.median(run.seconds)) if passes else 0)
    if min(shares) <= 1:
        return None
    return (
        f"in each of its {len(runs)} runs the median trip took less than the fastest copy of its bytes, by "
        f"{min(shares) - 1:.1%} or more: find out which bytes were not copied, or say at the row why it may be so"
    )
