# SPDX-License-Identifier: Apache-2.0
"""New weights go to four rollout actors in each step, as an argument by value: Ray serialises them four times.

Source: https://docs.ray.io/en/latest/ray-core/patterns/pass-large-arg-by-value.html
Cause: the same content is sent again"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Rollout:
    def set_weights(self, weights):
        return float(weights["layer0"][0, 0])


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    rollouts = [Rollout.remote() for _ in range(4)]
    weights = {f"layer{i}": np.ones((1024, 2048), np.float32) for i in range(12)}  # 96 MiB
    for _ in measured_steps(60):
        for layer in weights.values():
            layer *= 0.999
        argument = ray.put(weights) if FIXED else weights
        ray.get([rollout.set_weights.remote(argument) for rollout in rollouts])  # CAUSE


if __name__ == "__main__":
    main()
