# SPDX-License-Identifier: Apache-2.0
"""The driver gets a batch, splits it into shards, and sends one to each trainer, as the controller of verl does.

Source: NovaSky-AI/SkyRL#982
Cause: through a process that only passes it on
Harmful: the same content is sent again
"""

import numpy as np
import ray
from measured import FIXED, measured_steps

ROWS = 2048


@ray.remote
class Rollout:
    def __init__(self):
        self.tokens = np.arange(ROWS * 8192, dtype=np.float32).reshape(ROWS, 8192)  # 64 MiB

    def generate(self, step):
        self.tokens[:, 0] = step
        return {"tokens": self.tokens, "rewards": np.ones(ROWS)}


@ray.remote
class Trainer:
    def train(self, batch, rows):
        return float(batch["tokens"][rows].mean())


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    rollout = Rollout.remote()
    trainers = [Trainer.remote() for _ in range(2)]
    halves = [slice(0, ROWS // 2), slice(ROWS // 2, ROWS)]
    for step in measured_steps(60):
        batch = rollout.generate.remote(step)
        losses = []
        if not FIXED:
            batch = ray.get(batch)  # CAUSE
        for trainer, rows in zip(trainers, halves, strict=True):
            if FIXED:
                losses.append(trainer.train.remote(batch, rows))
            else:
                shard = {name: values[rows] for name, values in batch.items()}
                losses.append(trainer.train.remote(shard, slice(None)))  # CAUSE
        ray.get(losses)


if __name__ == "__main__":
    main()
