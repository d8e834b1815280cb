"""Say what limits the trust in a result, and what to do."""

import numpy as np

from dataflow.analysis.result import MIN_SHARE, NOT_SETTLED, Result, find_disturbance
from dataflow.records.schema import Run
from dataflow.units import format_bytes

MAX_DRIFT = 0.3  # of the fastest memcpy pass, from before to after the iterations
MIN_DRIFT_SECONDS = 0.01  # of that pass: messages that fit into caches are copied up to twice as fast at times
MAX_OVERHEAD = 0.05  # of the benchmark itself, of an iteration


def timed_seconds(run: Run) -> float:
    """Return the wall-clock time of a run's timed iterations: of each group from its first query to its last result."""
    return sum(run.group_seconds or run.seconds)


def warnings_of_run(run: Run) -> list[str]:
    """Return a line for each problem of the machine during a run, with what to do."""
    lines = []
    if disturbance := find_disturbance(run):
        lines.append(f"{disturbance} during the run: close other programs, and repeat it with --runs 5")
    before, after = (min(samples, default=0) for samples in (run.memcpy_before_seconds, run.memcpy_after_seconds))
    if min(before, after) > MIN_DRIFT_SECONDS and max(before / after, after / before) > 1 + MAX_DRIFT:
        lines.append(f"the memcpy time changed from {before * 1e3:.3g} to {after * 1e3:.3g} ms during the run, so the "
                     "speed of the machine changed: repeat it with --runs 5")  # fmt: skip
    return lines


def warnings(result: Result) -> list[str]:
    """Return what limits the trust in a result, one line each, with what to do. Empty if nothing was timed."""
    lines = [line for run in result.runs if run.seconds for line in warnings_of_run(run)]
    if not result.seconds:
        return [*lines, str(result.failure)] if result.status == NOT_SETTLED else lines
    if result.spilled_bytes:
        lines.append(f"{format_bytes(result.spilled_bytes)} were spilled to disk, so iterations were slower: raise "
                     "--object-store-bytes")  # fmt: skip
    if (result.overhead_share or 0) > MAX_OVERHEAD:
        lines.append(f"{result.overhead_share:.1%} of an iteration is the benchmark's own work (as over a null "
                     "transport): the transport itself is faster")  # fmt: skip
    bounds = [result.copy_seconds(run, np.median) for run in result.shown_runs if run.seconds]
    shares = [seconds / bound for seconds, bound in zip(result.run_seconds, bounds, strict=True) if bound]
    if result.readers_own_a_copy and min(shares, default=1) < MIN_SHARE:
        lines.append(f"the median iteration of a run takes {min(shares):.2f} times the memcpy time of the same run: "
                     "the machine was slower while memcpy was measured, or one copy serves several readers; repeat "
                     "it on an idle machine")  # fmt: skip
    return lines
