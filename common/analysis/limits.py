"""What cannot be: rows that took less time than the copies that they are of."""

from collections.abc import Sequence

import numpy as np

from common.analysis.statistics import MINIMUM_RUNS
from common.flow.flow import Flow
from common.record.schema import Run


def impossible(flow: Flow, one_process: bool, runs: Sequence[Run]) -> str | None:
    """Why a row that copies cannot have taken so little, in one line; None where it can.

    A run is under its limit where its median trip took less than the fastest pass of its own ceiling, before or after
    the trips; where actors of the flow can copy side by side, the passes by all cores count too. Its machine may have
    been slower while one run's ceiling was measured, so every run must be under, and fewer than MINIMUM_RUNS are only
    warned of (Result.above_ceiling).
    """
    if len(runs) < MINIMUM_RUNS or not all(run.payload_copied and run.seconds for run in runs):
        return None
    side_by_side = len(flow.edges) > flow.longest_path() and not one_process
    shares = []
    for run in runs:
        passes = run.ceiling_before_seconds + run.ceiling_after_seconds + run.ceiling_all_cores_seconds * side_by_side
        shares.append(float(np.median(run.seconds)) / min(passes) if passes else 1)
    if max(shares) >= 1:
        return None
    return (
        f"in each of its {len(runs)} runs the median trip took less than the fastest copy of its bytes, by "
        f"{1 - max(shares):.1%} or more: find out which bytes were not copied"
    )
