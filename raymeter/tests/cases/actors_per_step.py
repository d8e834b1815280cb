# SPDX-License-Identifier: Apache-2.0
"""A judge is made in each step, scores one batch, and is dropped.

Source: https://docs.ray.io/en/latest/ray-core/actors.html
Cause: actors made in each step
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Judge:
    def __init__(self, size):
        self.weights = np.linspace(0, 1, size)

    def score(self, answers):
        return float(answers @ self.weights)


def main():
    ray.init(num_cpus=2)
    kept = Judge.remote(1000) if FIXED else None
    for step in measured_steps(6):
        judge = kept
        if judge is None:
            judge = Judge.remote(1000)  # CAUSE
        ray.get(judge.score.remote(np.full(1000, float(step))))


if __name__ == "__main__":
    main()
