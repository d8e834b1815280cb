# SPDX-License-Identifier: Apache-2.0
"""Print how long the steps of a program take, which measure.py reads."""

import re
import time
from collections.abc import Iterator
from statistics import median

SKIPPED = 1  # the first step, in which workers start
PRINTED = re.compile(r"median step: ([\d.]+) s")


def timed_steps(count: int) -> Iterator[int]:
    """Yield the number of each step; print the median of their times after the last one."""
    seconds = []
    for step in range(count):
        start = time.perf_counter()
        yield step
        seconds.append(time.perf_counter() - start)
    print(f"median step: {median(seconds[SKIPPED:]):.4f} s", flush=True)


def read_step(output: str) -> float | None:
    """Return the seconds that a program has printed; None if it has not."""
    times = PRINTED.findall(output)
    return float(times[-1]) if times else None
