# SPDX-License-Identifier: Apache-2.0
"""Results of 32 MiB go from the sampler to the learner by reference, while the next ones are made.

Source: https://docs.ray.io/en/latest/ray-core/patterns/pipelining.html
Cause: none
"""

import time

import numpy as np
import ray
from measured import measured_steps


@ray.remote
class Sampler:
    def sample(self, step):
        time.sleep(0.1)
        return np.full((1024, 8192), step, np.float32)  # 32 MiB


@ray.remote
class Learner:
    def learn(self, batch):
        time.sleep(0.1)
        return float(batch[0, 0])


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    sampler = Sampler.remote()
    learner = Learner.remote()
    batch = sampler.sample.remote(0)
    for step in measured_steps(25):
        loss = learner.learn.remote(batch)
        batch = sampler.sample.remote(step + 1)
        ray.get(loss)


if __name__ == "__main__":
    main()
