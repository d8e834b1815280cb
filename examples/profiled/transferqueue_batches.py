# SPDX-License-Identifier: Apache-2.0
"""TransferQueue: two rollout workers put batches of 128 x 2,048 tokens, and a trainer gets all of them.

pip install --no-deps TransferQueue==0.1.11"""

from itertools import chain

import ray
import torch
import transfer_queue
from tensordict import TensorDict

from examples.profiled.steps import timed_steps

ROWS = 128
FIELDS = ("input_ids", "responses", "old_log_probs")


@ray.remote
class Rollout:
    def __init__(self, name):
        transfer_queue.init()
        self.name = name

    def generate(self, step):
        keys = [f"{step}-{self.name}-{row}" for row in range(ROWS)]
        columns = {field: torch.randint(0, 50_000, (ROWS, 2048)) for field in FIELDS}
        fields = TensorDict(columns, batch_size=ROWS)
        transfer_queue.kv_batch_put(keys=keys, partition_id="train", fields=fields)
        return keys


@ray.remote
class Trainer:
    def __init__(self):
        transfer_queue.init()

    def train(self, *parts):
        keys = [*chain.from_iterable(parts)]
        batch = transfer_queue.kv_batch_get(keys=keys, partition_id="train")
        total = int(batch["responses"].sum())
        transfer_queue.kv_clear(keys=keys, partition_id="train")
        return total


if __name__ == "__main__":
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    transfer_queue.init()
    rollouts = [Rollout.remote(name) for name in ("a", "b")]
    trainer = Trainer.remote()
    for step in timed_steps(15):
        parts = [rollout.generate.remote(step) for rollout in rollouts]
        total = ray.get(trainer.train.remote(*parts))
    print(f"sum {total}")
    transfer_queue.close()
