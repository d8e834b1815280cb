# SPDX-License-Identifier: Apache-2.0
"""A program with a runtime_env of its own: the driver gets each batch, only to pass it on.

Source: https://docs.ray.io/en/latest/ray-core/patterns/unnecessary-ray-get.html
Cause: through a process that only passes it on
"""

import os

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Rollout:
    def generate(self, step):
        value = step + int(os.environ["ROLLOUT_SEED"])
        return {"observations": np.full((2048, 8192), value, np.float32)}  # 64 MiB


@ray.remote
class Trainer:
    def train(self, batch):
        return float(batch["observations"][0].sum())


def main():
    environment = {"env_vars": {"ROLLOUT_SEED": "1"}}
    ray.init(num_cpus=4, object_store_memory=2 * 10**9, runtime_env=environment)
    rollout = Rollout.remote()
    trainer = Trainer.remote()
    for step in measured_steps(80):
        batch = rollout.generate.remote(step)
        if not FIXED:
            batch = ray.get(batch)  # CAUSE
        ray.get(trainer.train.remote(batch))  # CAUSE


if __name__ == "__main__":
    main()
