# SPDX-License-Identifier: Apache-2.0
"""A trainer sends bf16 weights to two rollout actors in each step: they are copied into the pickle, and out of it.

Source: ray-project/ray#56740
Cause: tensors in the pickle
"""

import ray
import torch
from measured import FIXED, measured_steps


@ray.remote
class Trainer:
    def __init__(self):
        self.weights = torch.ones(8, 4096, 1024, dtype=torch.bfloat16)  # 64 MiB

    def get_weights(self, step):  # CAUSE
        self.weights[0] = step
        if FIXED:
            return self.weights.view(torch.int16).numpy()  # numpy has no bf16
        return self.weights  # CAUSE


@ray.remote
class Rollout:
    def load(self, weights):
        if FIXED:
            weights = torch.from_numpy(weights).view(torch.bfloat16)
        return float(weights[0, 0, 0])


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    trainer = Trainer.remote()
    rollouts = [Rollout.remote() for _ in range(2)]
    for step in measured_steps(20):
        weights = trainer.get_weights.remote(step)  # CAUSE
        ray.get([rollout.load.remote(weights) for rollout in rollouts])


if __name__ == "__main__":
    main()
