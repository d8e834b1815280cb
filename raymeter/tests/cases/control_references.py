# SPDX-License-Identifier: Apache-2.0
"""New weights are stored once in each step, and go to four readers by reference: it's the documented pattern.

Source: https://docs.ray.io/en/latest/ray-core/patterns/pass-large-arg-by-value.html
Cause: none
"""

import numpy as np
import ray
from measured import measured_steps


@ray.remote
class Rollout:
    def set_weights(self, weights):
        return float(weights[0, 0])


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    rollouts = [Rollout.remote() for _ in range(4)]
    weights = np.ones((4096, 4096), np.float32)  # 64 MiB
    for _ in measured_steps(25):
        weights += 0.5
        reference = ray.put(weights)
        ray.get([rollout.set_weights.remote(reference) for rollout in rollouts])


if __name__ == "__main__":
    main()
