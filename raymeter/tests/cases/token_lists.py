# SPDX-License-Identifier: Apache-2.0
"""Rollouts return dicts whose tokens and log-probabilities are lists of Python numbers, as agents do.

Source: THUDM/slime#2006
Cause: lists of numbers
"""

import numpy as np
import ray
from measured import FIXED, measured_steps

SAMPLES = 512
LENGTH = 2048


@ray.remote
class Rollout:
    def __init__(self):
        tokens = np.arange(SAMPLES * LENGTH).reshape(SAMPLES, LENGTH) % 150_000
        logprobs = tokens / -150_000
        self.arrays = {"tokens": tokens, "logprobs": logprobs}
        pairs = zip(tokens.tolist(), logprobs.tolist(), strict=True)
        self.samples = [{"tokens": ids, "logprobs": values} for ids, values in pairs]

    def generate(self, step):  # CAUSE
        if FIXED:
            self.arrays["tokens"][:, 0] = step
            return self.arrays
        for sample in self.samples:
            sample["tokens"][0] = step
        return self.samples  # CAUSE


@ray.remote
class Trainer:
    def train(self, samples):
        return len(samples)


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    rollout = Rollout.remote()
    trainer = Trainer.remote()
    for step in measured_steps(15):
        ray.get(trainer.train.remote(rollout.generate.remote(step)))  # CAUSE


if __name__ == "__main__":
    main()
