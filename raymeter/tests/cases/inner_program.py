# SPDX-License-Identifier: Apache-2.0
"""A program starts another Ray program with a cluster of its own, whose driver passes each batch on.

Source: https://docs.ray.io/en/latest/ray-core/patterns/unnecessary-ray-get.html
Cause: through a process that only passes it on
"""

import subprocess
import sys

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
    ray.init(num_cpus=4, object_store_memory=10**9)
    rollout = Rollout.remote()
    trainer = Trainer.remote()
    for step in measured_steps(80):
        batch = rollout.generate.remote(step)
        if not FIXED:
            batch = ray.get(batch)  # CAUSE
        ray.get(trainer.train.remote(batch))  # CAUSE


def main():
    if sys.argv[1:] == ["inner"]:
        train()
        return
    ray.init(num_cpus=2, object_store_memory=10**8)
    ray.get(ray.put(np.ones(100_000)))
    subprocess.run([sys.executable, __file__, "inner"], check=True)


if __name__ == "__main__":
    main()
