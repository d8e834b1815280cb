# SPDX-License-Identifier: Apache-2.0
"""Two models score a batch, one after the other, since each result is got on its own line.

Source: https://docs.ray.io/en/latest/ray-core/patterns/ray-get-loop.html
Cause: one call after the other
"""

import time

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Reward:
    def score(self, batch):
        time.sleep(0.07)
        return float(batch.sum())


@ray.remote
class Reference:
    def log_probability(self, batch):
        time.sleep(0.09)
        return float(batch.mean())


def main():
    ray.init(num_cpus=2)
    reward = Reward.remote()
    reference = Reference.remote()
    batch = ray.put(np.ones(100_000))
    for _ in measured_steps(15):
        if FIXED:
            refs = [reward.score.remote(batch), reference.log_probability.remote(batch)]
            rewards, log_probability = ray.get(refs)
        else:
            rewards = ray.get(reward.score.remote(batch))  # CAUSE
            log_probability = ray.get(reference.log_probability.remote(batch))  # CAUSE
        if rewards < log_probability:
            raise ValueError("the reward is wrong")


if __name__ == "__main__":
    main()
