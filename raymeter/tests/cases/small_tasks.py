# SPDX-License-Identifier: Apache-2.0
"""A thousand tasks that each compute for a few microseconds: the calls of Ray are all of the time.

Source: https://docs.ray.io/en/latest/ray-core/patterns/too-fine-grained-tasks.html
Cause: many small calls
"""

import ray
from measured import FIXED, measured_steps

NUMBERS = 1000
BATCH = 100


@ray.remote
def double(number):
    return 2 * number


@ray.remote
def double_all(numbers):
    return [2 * number for number in numbers]


def main():
    ray.init(num_cpus=2)
    for _ in measured_steps(10):
        if FIXED:
            batches = [range(start, start + BATCH) for start in range(0, NUMBERS, BATCH)]
            ray.get([double_all.remote(batch) for batch in batches])
        else:
            ray.get([double.remote(number) for number in range(NUMBERS)])  # CAUSE


if __name__ == "__main__":
    main()
