# SPDX-License-Identifier: Apache-2.0
"""An async controller gathers the batches of two rollouts with asyncio, and sends each of them on to a trainer.

Source: https://docs.ray.io/en/latest/ray-core/patterns/unnecessary-ray-get.html
Cause: through a process that only passes it on
"""

import asyncio

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Rollout:
    def __init__(self):
        self.batch = np.ones((16, 1024, 1024), np.float32)  # 64 MiB

    async def generate(self, step):
        self.batch[0, 0, 0] = step
        return {"hidden": self.batch, "step": step}


@ray.remote
class Trainer:
    def train(self, batch):
        return float(batch["hidden"][0, 0, 0])


async def run_step(rollouts, trainers, step):
    refs = [rollout.generate.remote(step) for rollout in rollouts]
    batches = refs if FIXED else await asyncio.gather(*refs)  # CAUSE
    losses = []
    for trainer, batch in zip(trainers, batches, strict=True):
        losses.append(trainer.train.remote(batch))  # CAUSE
    await asyncio.gather(*losses)


async def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    rollouts = [Rollout.remote() for _ in range(2)]
    trainers = [Trainer.remote() for _ in range(2)]
    for step in measured_steps(60):
        await run_step(rollouts, trainers, step)


if __name__ == "__main__":
    asyncio.run(main())
