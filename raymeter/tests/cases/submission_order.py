# SPDX-License-Identifier: Apache-2.0
"""The driver handles results in the order of submission, so it waits for the slow first one while others are ready.

Source: https://docs.ray.io/en/latest/ray-core/patterns/ray-get-submission-order.html
Cause: results in the order of submission
Harmful: one task at a time
"""

import time

import ray
from measured import FIXED, measured_steps


@ray.remote
def generate(number):
    time.sleep(0.2 if number == 0 else 0.02)  # one answer is much longer
    return number


def handle(result):
    """Spend 20 ms in the driver, such as on a checkpoint."""
    time.sleep(0.02)
    return result


def main():
    ray.init(num_cpus=8)
    for _ in measured_steps(12):
        pending = [generate.remote(number) for number in range(8)]
        while pending:
            if FIXED:
                ready, pending = ray.wait(pending)
            else:
                ready, pending = pending[:1], pending[1:]
            handle(ray.get(ready[0]))  # CAUSE


if __name__ == "__main__":
    main()
