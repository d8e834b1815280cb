# SPDX-License-Identifier: Apache-2.0
"""A rollout returns 50,000 instances of a dataclass, which are pickled one by one.

Source: ray-project/ray#907
Cause: Python objects in the pickle
"""

from dataclasses import dataclass

import numpy as np
import ray
from measured import FIXED, measured_steps

SAMPLES = 50_000


@dataclass
class Sample:
    task: str
    reward: float
    length: int


@ray.remote
class Rollout:
    def __init__(self):
        tasks = [f"task-{number}" for number in range(SAMPLES)]
        self.samples = [Sample(task, 1.0, 0) for task in tasks]
        self.arrays = {"task": np.array(tasks), "reward": np.ones(SAMPLES)}

    def generate(self, step):  # CAUSE
        if FIXED:
            return {**self.arrays, "length": np.full(SAMPLES, step)}
        for sample in self.samples:
            sample.length = step
        return self.samples  # CAUSE


@ray.remote
class Trainer:
    def train(self, samples):
        return len(samples)


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    rollout = Rollout.remote()
    trainer = Trainer.remote()
    for step in measured_steps(15):
        ray.get(trainer.train.remote(rollout.generate.remote(step)))  # CAUSE


if __name__ == "__main__":
    main()
