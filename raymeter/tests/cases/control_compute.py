# SPDX-License-Identifier: Apache-2.0
"""Two workers multiply matrices, and their messages have one MiB: the computation is nearly all of a step.

Source: https://docs.ray.io/en/latest/ray-core/patterns/too-fine-grained-tasks.html
Cause: none
"""

import numpy as np
import ray
from measured import measured_steps


@ray.remote
class Worker:
    def compute(self, vector):
        matrix = np.full((700, 700), vector.mean())
        for _ in range(8):
            matrix = matrix @ matrix / 700
        return np.full(131_072, matrix[0, 0] + 0.001)  # 1 MiB


def main():
    ray.init(num_cpus=2)
    workers = [Worker.remote() for _ in range(2)]
    vector = np.ones(131_072)
    for _ in measured_steps(20):
        parts = ray.get([worker.compute.remote(vector) for worker in workers])
        vector = np.mean(parts, axis=0)


if __name__ == "__main__":
    main()
