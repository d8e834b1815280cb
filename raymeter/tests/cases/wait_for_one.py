# SPDX-License-Identifier: Apache-2.0
"""ray.wait returns one of a thousand references at a time, and looks at all of them in each call.

Source: https://docs.ray.io/en/latest/ray-core/patterns/limit-pending-tasks.html
Cause: ray.wait of one of many
"""

import ray
from measured import FIXED, measured_steps

TASKS = 1000


@ray.remote
def work(number):
    return number


def main():
    ray.init(num_cpus=2)
    for _ in measured_steps(5):
        pending = [work.remote(number) for number in range(TASKS)]
        while pending:
            count = min(100, len(pending)) if FIXED else 1
            ready, pending = ray.wait(pending, num_returns=count)  # CAUSE
            ray.get(ready)


if __name__ == "__main__":
    main()
