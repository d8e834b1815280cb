# SPDX-License-Identifier: Apache-2.0
"""An actor asks four readers for their shards one after the other: the loop that waits is inside of a method.

Source: https://docs.ray.io/en/latest/ray-core/patterns/nested-ray-get.html
Cause: one task at a time
"""

import time

import ray
from measured import FIXED, measured_steps


@ray.remote
class Reader:
    def read(self, shard):
        time.sleep(0.05)  # a slow disk
        return shard


@ray.remote
class Trainer:
    def train(self, readers):
        total = 0
        if FIXED:
            return sum(ray.get([reader.read.remote(1) for reader in readers]))
        for reader in readers:
            total += ray.get(reader.read.remote(1))  # CAUSE
        return total


def main():
    ray.init(num_cpus=8)
    readers = [Reader.remote() for _ in range(4)]
    trainer = Trainer.remote()
    for _ in measured_steps(15):
        ray.get(trainer.train.remote(readers))


if __name__ == "__main__":
    main()
