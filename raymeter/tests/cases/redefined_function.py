# SPDX-License-Identifier: Apache-2.0
"""Each metric defines its remote function anew: Ray exports it, and each worker that runs it has to load it.

Source: https://docs.ray.io/en/latest/ray-core/patterns/redefine-task-actor-loop.html
Cause: a function is defined again and again
"""

import ray
from measured import FIXED, measured_steps

METRICS = 20


@ray.remote
def measure_power(values, power):
    return sum(value**power for value in values)


def measure(values, power):
    """Return the reference of one metric."""
    if FIXED:
        return measure_power.remote(values, power)

    @ray.remote
    def measure_once(values):  # CAUSE
        return sum(value**power for value in values)

    return measure_once.remote(values)  # CAUSE


def main():
    ray.init(num_cpus=2)
    values = list(range(100))
    for _ in measured_steps(30):
        ray.get([measure(values, power) for power in range(METRICS)])


if __name__ == "__main__":
    main()
