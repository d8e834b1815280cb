# SPDX-License-Identifier: Apache-2.0
"""A replay buffer of references does not fit into the object store: Ray spills batches to disk, and restores them.

Source: ray-project/ray#22485, https://docs.ray.io/en/latest/ray-core/objects/object-spilling.html
Cause: the object store spills
"""

import numpy as np
import ray
from measured import FIXED, measured_steps

STORE_BYTES = 2 * 10**9 if FIXED else 200 * 10**6


@ray.remote
class Rollout:
    def generate(self, step):
        return np.full((1280, 8192), step, np.float32)  # 40 MiB


@ray.remote
class Trainer:
    def train(self, *batches):
        return [float(batch[0, 0]) for batch in batches]


def main():
    ray.init(num_cpus=4, object_store_memory=STORE_BYTES)  # CAUSE
    random = np.random.default_rng(0)
    rollout = Rollout.remote()
    trainer = Trainer.remote()
    buffer = [rollout.generate.remote(number) for number in range(8)]
    for step in measured_steps(80):
        buffer = [*buffer[-11:], rollout.generate.remote(step)]  # CAUSE
        chosen = random.choice(len(buffer), size=3, replace=False)
        ray.get(trainer.train.remote(*[buffer[number] for number in chosen]))


if __name__ == "__main__":
    main()
