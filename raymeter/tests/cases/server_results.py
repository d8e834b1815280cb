# SPDX-License-Identifier: Apache-2.0
"""A threaded parameter server returns its weights to four workers: each call stores one more copy of them.

Source: https://docs.ray.io/en/latest/ray-core/patterns/return-ray-put.html
Cause: the same content is sent again
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote(num_cpus=0, max_concurrency=4)
class Server:
    def __init__(self):
        self.weights = np.ones((4096, 4096), np.float32)  # 64 MiB
        self.reference = ray.put(self.weights)

    def update(self, step):
        self.weights[step] += 1.0
        if FIXED:
            self.reference = ray.put(self.weights)

    def get_weights(self):  # CAUSE
        return [self.reference] if FIXED else self.weights  # CAUSE


@ray.remote
class Worker:
    def pull(self, server):
        weights = ray.get(server.get_weights.remote())  # CAUSE
        if FIXED:
            weights = ray.get(weights[0])
        return float(weights[0].sum())


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    server = Server.remote()
    workers = [Worker.remote() for _ in range(4)]
    for step in measured_steps(80):
        ray.get(server.update.remote(step))
        ray.get([worker.pull.remote(server) for worker in workers])


if __name__ == "__main__":
    main()
