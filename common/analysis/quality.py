"""Judge whether the numbers of a result can be trusted: disturbances, impossible times and warnings, one line each."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from common.analysis.statistics import MIN_RUNS
from common.flows.flow import Flow
from common.records.schema import Run
from common.units import format_bytes

if TYPE_CHECKING:
    from common.analysis.result import Result

MAX_BUSY_CORES = 0.5  # of other programs
MAX_DRIFT = 0.25  # of the memcpy time from before to after the iterations
MAX_THROTTLED = 0.05  # of the time of the iterations
MAX_VARIATION = 0.10  # standard deviation / mean
MAX_OVERHEAD = 0.01  # of the benchmark itself, of an iteration
MIN_TIMES_MEMCPY = 0.99  # for readers that own a copy


def median_memcpy_seconds(runs: Iterable[Run]) -> float | None:
    """Return the median memcpy pass by --threads threads, before and after the iterations of these runs."""
    samples = [seconds for run in runs for seconds in run.memcpy_before_seconds + run.memcpy_after_seconds]
    return float(np.median(samples)) if samples else None


def disturbances(run: Run) -> list[str]:
    """Return a line for each disturbance of a run, with what to do."""
    lines = []
    if run.busy_cores > MAX_BUSY_CORES:
        lines.append(f"other programs used {run.busy_cores:.1f} cores before the run: close them, and repeat it")
    if (run.throttled_seconds or 0) > MAX_THROTTLED * sum(run.seconds):
        lines.append(f"a CPU limit stopped the container for {run.throttled_seconds:.1f} s: raise the limit")
    before, after = (float(np.median(s or [0])) for s in (run.memcpy_before_seconds, run.memcpy_after_seconds))
    if before and after and max(before / after, after / before) > 1 + MAX_DRIFT:
        lines.append(f"the memcpy time changed from {before * 1e3:.3g} to {after * 1e3:.3g} ms during the run, so the "
                     "speed of the machine changed: repeat it with --runs 5")  # fmt: skip
    return lines


def impossible(flow: Flow, single_process: bool, runs: Sequence[Run]) -> str | None:
    """Return why readers that own a copy cannot have got it in so little time; None if they can.

    Passes by all cores count too if actors of the flow can copy at the same time. As the machine may have been slower
    while the memcpy time of one run was measured, every run must be too fast, and there must be MIN_RUNS.
    """
    if len(runs) < MIN_RUNS or not all(run.readers_own_a_copy and run.seconds for run in runs):
        return None
    shares = []
    for run in runs:
        passes = run.memcpy_before_seconds + run.memcpy_after_seconds
        if len(flow.edges) > flow.path_length(max) and not single_process:
            passes = passes + run.memcpy_all_cores_seconds
        shares.append(float(np.median(run.seconds)) / min(passes) if passes else 1)
    if max(shares) >= 1:
        return None
    return (f"in each of {len(runs)} runs the median iteration took less time than the fastest memcpy of its bytes, by "
            f"{1 - max(shares):.1%} or more: find out which bytes were not copied")  # fmt: skip


def warnings(result: "Result") -> list[str]:
    """Return what limits the trust in a result, one line each, with what to do. Empty if nothing was timed."""
    if not result.seconds:
        return []
    lines = [line for run in result.runs for line in disturbances(run)]
    if result.spilled_bytes:
        lines.append(f"{format_bytes(result.spilled_bytes)} were spilled to disk, so iterations were slower: raise "
                     "--object-store-bytes")  # fmt: skip
    if result.summary.variation > MAX_VARIATION:
        lines.append(f"the iterations vary by {result.summary.variation:.0%} (standard deviation / mean): close other "
                     "programs, and raise --iterations or --runs")  # fmt: skip
    if result.overhead_share > MAX_OVERHEAD:
        lines.append(f"{result.overhead_share:.1%} of an iteration is the benchmark's own work (sequence numbers)")
    memcpy_seconds = median_memcpy_seconds(result.shown_runs)
    if memcpy_seconds and result.readers_own_a_copy and result.summary.median < MIN_TIMES_MEMCPY * memcpy_seconds:
        lines.append(f"the median iteration takes {result.summary.median / memcpy_seconds:.2f} times the memcpy time: "
                     "the machine was slower while that was measured, or one copy serves several readers; repeat it "
                     "on an idle machine")  # fmt: skip
    return lines
