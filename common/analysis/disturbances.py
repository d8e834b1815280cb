"""What the machine did beside a run, or to it, with what to do about it."""

import numpy as np

from common.record.schema import Run

BUSY_CORES = 0.5  # of others' work, above which a run is disturbed
DRIFT = 0.25  # of the ceiling, between before and after
THROTTLED = 0.05  # of the trips
TICKS = 100  # of the clock, which a trip should have


def disturbances(run: Run, clock_resolution_seconds: float = 0.0) -> list[str]:
    """A line for each; none where the machine had nothing else to do."""
    found = []
    if run.busy_cores > BUSY_CORES:
        found.append(f"other programs kept {run.busy_cores:.1f} cores busy before it began: close them, and repeat it")
    if (run.throttled_seconds or 0) > THROTTLED * sum(run.seconds):
        found.append(f"a CPU limit held it back for {run.throttled_seconds:.1f} s: raise the container's limit")
    before, after = (float(np.median(s or [0])) for s in (run.ceiling_before_seconds, run.ceiling_after_seconds))
    if before and after and max(before / after, after / before) > 1 + DRIFT:
        found.append(f"its ceiling went from {before * 1e3:.3g} to {after * 1e3:.3g} ms meanwhile, so the machine "
                     "changed its speed: repeat it with --runs 5")  # fmt: skip
    if run.seconds and float(np.median(run.seconds)) < TICKS * clock_resolution_seconds:
        found.append("a trip is under a hundred ticks of the clock: give it more to do (--roles, --payload)")
    return found
