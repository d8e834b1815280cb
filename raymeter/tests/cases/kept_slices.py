# SPDX-License-Identifier: Apache-2.0
"""A replay actor keeps ten rows of each batch, and with these views the whole batches stay in the object store.

Source: ray-project/ray#9504, ray-project/ray#8227
Cause: kept views hold whole objects
Or: the object store spills
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Rollout:
    def generate(self, step):
        return np.full((640, 8192), step, np.float32)  # 20 MiB


@ray.remote
class Replay:
    def __init__(self):
        self.rows = []

    def add(self, batch):  # CAUSE
        rows = batch[:10]
        self.rows.append(rows.copy() if FIXED else rows)  # CAUSE
        return len(self.rows)


def main():
    ray.init(num_cpus=4, object_store_memory=300 * 10**6)
    rollout = Rollout.remote()
    replay = Replay.remote()
    for step in measured_steps(50):
        ray.get(replay.add.remote(rollout.generate.remote(step)))  # CAUSE


if __name__ == "__main__":
    main()
