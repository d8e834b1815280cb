"""Whether the machine has anything else to do, or is held back: what makes a run's times say less."""

from collections.abc import Iterator
from pathlib import Path

import psutil

LOOK_SECONDS = 0.1
CGROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def busy_cores() -> float:
    """How many cores' worth of work others do, over a moment in which the run has not begun."""
    return psutil.cpu_percent(interval=LOOK_SECONDS) / 100 * (psutil.cpu_count() or 1)


def throttled_seconds() -> float | None:
    """For how long the container's CPU limit has held processes back so far; None where nothing says so."""
    for folder, name, unit in _places():
        try:
            stat = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
            return int(stat[name]) * unit
        except (OSError, KeyError, ValueError):
            continue
    return None


def _places() -> Iterator[tuple[Path, str, float]]:
    """Where cgroup v2, or v1, says it of this process, under which name, and in which unit of seconds."""
    for line in OWN_GROUPS.read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            yield CGROUPS / group.lstrip("/"), "throttled_usec", 1e-6
        elif "cpu" in controllers.split(","):
            yield CGROUPS / "cpu" / group.lstrip("/"), "throttled_time", 1e-9
