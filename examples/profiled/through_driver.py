# SPDX-License-Identifier: Apache-2.0
"""A training loop whose driver gets each batch and passes it on."""

import ray
import torch

BATCH = {
    "tokens": torch.int64,
    "positions": torch.int64,
    "logprobs": torch.float32,
    "advantages": torch.float32,
}


@ray.remote(num_cpus=0)
class Rollout:
    def generate(self):
        return {name: torch.ones(512, 2048, dtype=dtype) for name, dtype in BATCH.items()}


@ray.remote(num_cpus=0)
class Trainer:
    def train(self, *batches):
        return float(sum(batch["logprobs"].sum() for batch in batches))


if __name__ == "__main__":
    ray.init(num_cpus=2)
    rollouts = [Rollout.remote() for _ in range(2)]
    trainer = Trainer.remote()
    for _ in range(20):
        batches = ray.get([rollout.generate.remote() for rollout in rollouts])
        loss = ray.get(trainer.train.remote(*batches))
    print(f"loss {loss}")
