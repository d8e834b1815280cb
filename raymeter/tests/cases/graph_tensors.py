# SPDX-License-Identifier: Apache-2.0
"""A compiled graph sends large tensors through its channels in shared memory, which pickle them.

Source: ray-project/ray#45323
Cause: tensors in the pickle
"""

import ray
import torch
from measured import FIXED, measured_steps
from ray.dag import InputNode


@ray.remote
class Policy:
    def generate(self, step):  # CAUSE
        batch = torch.full((2048, 8192), float(step))  # 64 MiB
        return batch.numpy() if FIXED else batch  # CAUSE


@ray.remote
class Reward:
    def score(self, batch):
        return float(batch[0].sum())


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    policy = Policy.remote()
    reward = Reward.remote()
    with InputNode() as step_input:
        batch = policy.generate.bind(step_input)  # CAUSE
        score = reward.score.bind(batch)
    graph = score.experimental_compile(_buffer_size_bytes=100 * 2**20)
    for step in measured_steps(20):
        ray.get(graph.execute(step))
    graph.teardown(kill_actors=True)


if __name__ == "__main__":
    main()
