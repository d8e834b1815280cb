"""Whether the machine has anything else to do, or is held back: what makes a run's times say less."""

from pathlib import Path

import psutil

LOOK_SECONDS = 0.1
CGROUPS = Path("/sys/fs/cgroup")


def busy_cores() -> float:
    """How many cores' worth of work others do, over a moment in which the run has not begun."""
    return psutil.cpu_percent(interval=LOOK_SECONDS) / 100 * (psutil.cpu_count() or 1)


def throttled_seconds() -> float:
    """For how long the container's CPU limit has held processes back so far; 0 where nothing says so (cgroup v2)."""
    try:
        stat = dict(line.split() for line in (CGROUPS / own_group() / "cpu.stat").read_text().splitlines())
        return int(stat["throttled_usec"]) / 1e6
    except (OSError, KeyError, ValueError):
        return 0.0


def own_group() -> str:
    """Of this process, below CGROUPS; the root where it has none."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")
