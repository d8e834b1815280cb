# SPDX-License-Identifier: Apache-2.0
"""One buffer is filled with another shard for each worker: the array is the same object, its contents are not.

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
    buffer = np.empty((1024, 8192), np.float32)  # 32 MiB
    for step in measured_steps(15):
        losses = []
        for number, worker in enumerate(workers):
            buffer[:] = 4 * step + number
            losses.append(worker.train.remote({"shard": buffer}))
        ray.get(losses)


if __name__ == "__main__":
    main()
