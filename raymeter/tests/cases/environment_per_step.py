# SPDX-License-Identifier: Apache-2.0
"""Each step gives its number to a task in an environment variable, so a worker must start for it in each step.

Source: https://docs.ray.io/en/latest/ray-core/handling-dependencies.html#runtime-environments
Cause: a new runtime_env in each step
"""

import os

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
def roll_out(observations, seed=None):
    if seed is None:
        seed = int(os.environ["EPISODE_SEED"])
    generator = np.random.default_rng(seed)
    return float(observations[generator.integers(len(observations))])


def main():
    ray.init(num_cpus=2)
    observations = ray.put(np.arange(50_000.0))
    for step in measured_steps(5):
        if FIXED:
            ray.get(roll_out.remote(observations, step))
        else:
            variables = {"EPISODE_SEED": str(step)}
            environment = {"env_vars": variables}
            ray.get(
                roll_out.options(runtime_env=environment).remote(observations)  # CAUSE
            )


if __name__ == "__main__":
    main()
