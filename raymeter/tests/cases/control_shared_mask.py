# SPDX-License-Identifier: Apache-2.0
"""Each worker gets its own shard, and all messages hold one small common mask: there is nothing to store once.

Source: https://docs.ray.io/en/latest/ray-core/patterns/pass-large-arg-by-value.html
Cause: none
Harmful: the same content is sent again
"""

import numpy as np
import ray
from measured import measured_steps


@ray.remote
class Worker:
    def train(self, batch):
        return float(batch["shard"][0].sum())


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    workers = [Worker.remote() for _ in range(4)]
    mask = np.ones(512, np.int64)
    for step in measured_steps(15):
        losses = []
        for number, worker in enumerate(workers):
            shard = np.full((1024, 8192), 4 * step + number, np.float32)  # 32 MiB
            losses.append(worker.train.remote({"shard": shard, "mask": mask}))
        ray.get(losses)


if __name__ == "__main__":
    main()
