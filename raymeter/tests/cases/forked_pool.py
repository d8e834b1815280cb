# SPDX-License-Identifier: Apache-2.0
"""A forked pool prepares numbers beside Ray, and the driver sends one batch by value to four actors.

Source: https://docs.ray.io/en/latest/ray-core/patterns/fork-new-processes.html
Cause: the same content is sent again
"""

import multiprocessing

import numpy as np
import ray
from measured import FIXED, measured_steps


def prepare(number):
    return float(np.full(100_000, number).mean())


@ray.remote
class Worker:
    def train(self, batch):
        return float(batch["observations"][0].sum())


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    workers = [Worker.remote() for _ in range(4)]
    pool = multiprocessing.get_context("fork").Pool(2)
    for step in measured_steps(60):
        value = step + sum(pool.map(prepare, range(4)))
        batch = {"observations": np.full((1024, 8192), value, np.float32)}  # 32 MiB
        argument = ray.put(batch) if FIXED else batch
        ray.get([worker.train.remote(argument) for worker in workers])  # CAUSE
    pool.close()
    pool.join()


if __name__ == "__main__":
    main()
