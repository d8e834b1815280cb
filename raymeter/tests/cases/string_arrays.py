# SPDX-License-Identifier: Apache-2.0
"""Prompts travel as an object array of Python strings, each of which is pickled; an Arrow array is one buffer.

Source: https://discuss.ray.io/t/on-task-deserealization-and-effective-usage-of-plasma-store/4205
Cause: Python objects in the pickle
"""

import numpy as np
import pyarrow as pa
import ray
from measured import FIXED, measured_steps


@ray.remote
class Loader:
    def __init__(self):
        prompts = [f"prompt number {number} of a user" for number in range(200_000)]
        self.prompts = np.array(prompts, dtype=object)
        self.column = pa.array(prompts)

    def load(self, step):  # CAUSE
        prompts = [f"new prompt {number} of step {step}" for number in range(1000)]
        if FIXED:
            return pa.chunked_array([pa.array(prompts), self.column[1000:]])
        self.prompts[:1000] = prompts
        return self.prompts  # CAUSE


@ray.remote
class Rollout:
    def generate(self, prompts):
        return len(str(prompts[0]))


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    loader = Loader.remote()
    rollout = Rollout.remote()
    for step in measured_steps(15):
        ray.get(rollout.generate.remote(loader.load.remote(step)))  # CAUSE


if __name__ == "__main__":
    main()
