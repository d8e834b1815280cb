# SPDX-License-Identifier: Apache-2.0
"""Two phases, each in a cluster of its own; in both, the driver gets each batch, only to pass it on.

Source: https://docs.ray.io/en/latest/ray-core/patterns/unnecessary-ray-get.html
Cause: through a process that only passes it on
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Rollout:
    def generate(self, step):
        return {"observations": np.full((2048, 8192), step, np.float32)}  # 64 MiB


@ray.remote
class Trainer:
    def train(self, batch):
        return float(batch["observations"][0].sum())


def train():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    rollout = Rollout.remote()
    trainer = Trainer.remote()
    for step in measured_steps(60):
        batch = rollout.generate.remote(step)
        if not FIXED:
            batch = ray.get(batch)  # CAUSE
        ray.get(trainer.train.remote(batch))  # CAUSE
    ray.shutdown()


if __name__ == "__main__":
    train()
    train()
