# SPDX-License-Identifier: Apache-2.0
"""Say what limits the trust in a result."""

from collections.abc import Iterator

import numpy as np

from dataflow.analysis.result import MIN_SHARE, NOT_SETTLED, Result
from dataflow.records.schema import Run
from dataflow.units import format_bytes

# Of the fastest memcpy pass: the ratio of its times before and after the iterations.
MAX_DRIFT = 1.3
# Of that pass: messages that fit into caches are copied up to twice as fast at times.
MIN_DRIFT_SECONDS = 0.01
MAX_OVERHEAD = 0.05  # of the benchmark itself, of an iteration


def warnings(result: Result) -> list[str]:
    """Return what limits the trust in a result, one line each, with what to do. Empty if nothing was timed."""
    lines: list[str] = []
    for run in result.runs:
        if run.seconds:
            lines += warn_of_run(run)
    if result.seconds:
        return [*lines, *warn_of_times(result)]
    if result.status == NOT_SETTLED:
        lines.append(str(result.failure))
    return lines


def warn_of_run(run: Run) -> Iterator[str]:
    """Yield what disturbed a run, and a change of the machine's speed."""
    if disturbance := run.disturbance:
        yield f"{disturbance} during the run: close other programs, and repeat it with --runs 5"
    if not run.memcpy_before_seconds or not run.memcpy_after_seconds:
        return
    before = min(run.memcpy_before_seconds)
    after = min(run.memcpy_after_seconds)
    drift = max(before / after, after / before)
    if min(before, after) > MIN_DRIFT_SECONDS and drift > MAX_DRIFT:
        yield (
            f"the memcpy time changed from {before * 1e3:.3g} to {after * 1e3:.3g} ms during the run, so the speed of "
            "the machine changed: repeat it with --runs 5"
        )


def warn_of_times(result: Result) -> Iterator[str]:
    """Yield what makes the times of a result larger or smaller than those of its transport."""
    if result.spilled_bytes:
        yield (
            f"{format_bytes(result.spilled_bytes)} were spilled to disk, so iterations were slower: raise "
            "--object-store-bytes"
        )
    unsettled = [run for run in result.shown_runs if run.settled is False]
    if unsettled:
        yield (
            f"not settled after {unsettled[-1].warmup_iterations} untimed iterations; it counts, because its processes "
            "keep memory: give --iterations 100 or more, and compare means"
        )
    if (result.overhead_share or 0) > MAX_OVERHEAD:
        yield (
            f"{result.overhead_share:.1%} of an iteration is the benchmark's own work (as over a null transport): the "
            "transport itself is faster"
        )
    share = min(result.copy_shares(np.median), default=1)
    if result.readers_own_a_copy and share < MIN_SHARE:
        yield (
            f"the median iteration of a run takes {share:.2f} times the memcpy time of the same run: the machine was "
            "slower while memcpy was measured, or one copy serves several readers; repeat it on an idle machine"
        )
