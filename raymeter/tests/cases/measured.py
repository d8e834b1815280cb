# SPDX-License-Identifier: Apache-2.0
"""What all cases share: whether the fix is on, the number of steps, and the line with their times."""

import os
import time
from collections.abc import Iterator, Sequence
from statistics import mean, median

FIXED = "FIXED" in os.environ


def measured_steps(default: int) -> Iterator[int]:
    """Yield the number of each step, and print the times of all steps after the last one.

    STEPS in the environment replaces the default number of steps.
    """
    seconds = []
    for step in range(number_of_steps(default)):
        start = time.perf_counter()
        yield step
        seconds.append(time.perf_counter() - start)
    print_times(seconds)


def number_of_steps(default: int) -> int:
    return int(os.environ.get("STEPS", default))


def print_times(seconds: Sequence[float]) -> None:
    """Print the median and the mean of the times of the steps, in milliseconds."""
    middle = 1e3 * median(seconds)
    average = 1e3 * mean(seconds)
    print(f"STEP_MS {middle:.2f} MEAN_MS {average:.2f} STEPS {len(seconds)}", flush=True)
