# SPDX-License-Identifier: Apache-2.0
"""A Ray program whose messages are known. It is profiled in tests, and knows nothing of the profiler."""

import time

import numpy as np
import ray
import torch

STEPS = 10
MIB = 2**20


class Slow:
    """An object whose pickling takes 50 ms."""

    def __init__(self):
        self.array = np.ones(MIB, dtype=np.uint8)

    def __reduce__(self):
        time.sleep(0.05)
        return np.sum, (self.array,)


@ray.remote(num_cpus=0)
class Rollout:
    def __init__(self, weights):
        self.batch = torch.arange(64 * 512).reshape(64, 512)

    def generate(self):
        return {"tokens": torch.ones(MIB // 8, dtype=torch.int64), "logprobs": torch.ones(MIB // 4)}

    def split(self):
        return list(self.batch.unbind())

    def route(self):
        return {"experts": [123_456_789] * 100_000}

    def wait_long(self):
        return Slow()


@ray.remote(num_cpus=0)
class Trainer:
    def train(self, batch):
        return 1.0

    def read(self, batch):
        return 1.0

    def load(self, weights):
        return 1.0


@ray.remote(num_cpus=0)
def count(batch):
    return len(batch)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    weights = ray.put(np.zeros(MIB // 2, dtype=np.float32))  # 2 MiB
    rollout, trainers = (
        Rollout.remote(np.zeros(300_000, dtype=np.uint8)),
        [Trainer.remote() for _ in range(2)],
    )
    for _ in range(STEPS):
        batch = ray.get(rollout.generate.remote())
        ray.get(trainers[0].train.remote(batch))  # through the driver
        ray.get([trainer.load.remote(weights) for trainer in trainers])  # two readers of one object
        ray.get(
            trainers[1].read.remote(rollout.split.remote())
        )  # by reference: 64 views of one batch
        ray.get(count.remote(rollout.route.remote()))  # numbers
        ray.get(rollout.wait_long.remote())
        own = {"state": np.ones(MIB, dtype=np.uint8)}
        ray.get(
            [trainer.read.remote(own) for trainer in trainers]
        )  # serialised once for each reader
    print("the output of the program", ray.get_runtime_context().runtime_env)
