# SPDX-License-Identifier: Apache-2.0
"""Answers of at most 900 tokens are padded to the longest length that is allowed, 16,384: nearly all bytes are padding.

Source: verl-project/verl#6009, NVIDIA-NeMo/RL#2439
Cause: most of it is one value
"""

import numpy as np
import ray
from measured import FIXED, measured_steps

ANSWERS = 512
LONGEST = 900
MAX_LENGTH = 16_384


@ray.remote
class Rollout:
    def __init__(self):
        self.tokens = np.zeros((ANSWERS, MAX_LENGTH), np.int64)  # 64 MiB
        self.lengths = np.full(ANSWERS, LONGEST)

    def generate(self, step):  # CAUSE
        self.tokens[:, :LONGEST] = np.arange(LONGEST) + step
        if FIXED:
            tokens = self.tokens[:, : self.lengths.max()].copy()
            return {"tokens": tokens, "lengths": self.lengths}
        return {"tokens": self.tokens, "lengths": self.lengths}  # CAUSE


@ray.remote
class Trainer:
    def train(self, batch):
        longest = batch["lengths"].max()
        return int(batch["tokens"][:, :longest].sum())


def main():
    ray.init(num_cpus=3, object_store_memory=2 * 10**9)
    rollouts = [Rollout.remote() for _ in range(2)]
    trainer = Trainer.remote()
    for step in measured_steps(20):
        batches = [rollout.generate.remote(step) for rollout in rollouts]  # CAUSE
        ray.get([trainer.train.remote(batch) for batch in batches])


if __name__ == "__main__":
    main()
