# SPDX-License-Identifier: Apache-2.0
"""Samplers return a list of 5,000 small arrays, one per trajectory: the time goes with their number.

Source: ray-project/ray#755, huggingface/trl#6386
Cause: many small arrays
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Sampler:
    def __init__(self):
        self.trajectories = np.ones((5000, 1024), np.float32)  # 20 MiB

    def sample(self, step):  # CAUSE
        self.trajectories[:, 0] = np.arange(5000) + step
        return self.trajectories if FIXED else list(self.trajectories)  # CAUSE


@ray.remote
class Learner:
    def learn(self, *samples):
        return sum(len(sample) for sample in samples)


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    samplers = [Sampler.remote() for _ in range(2)]
    learner = Learner.remote()
    for step in measured_steps(15):
        samples = [sampler.sample.remote(step) for sampler in samplers]  # CAUSE
        ray.get(learner.learn.remote(*samples))


if __name__ == "__main__":
    main()
