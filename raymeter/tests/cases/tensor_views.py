# SPDX-License-Identifier: Apache-2.0
"""A batch that requires a gradient is cut into eight micro-batches, each of which brings the whole storage.

Source: ray-project/ray#12317
Cause: views bring their whole storage
Or: tensors in the pickle
Harmful: the same content is sent again
"""

import ray
import torch
from measured import FIXED, measured_steps


@ray.remote
class Learner:
    def learn(self, micro_batch):
        return float(micro_batch.detach()[0].sum())


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    learners = [Learner.remote() for _ in range(2)]
    for step in measured_steps(8):
        batch = torch.arange(4096.0 * 2048).reshape(4096, 2048)  # 32 MiB
        batch += step
        losses = []
        for number, view in enumerate(batch.split(512)):
            part = view.clone() if FIXED else view
            learner = learners[number % 2]
            losses.append(learner.learn.remote(part.requires_grad_()))  # CAUSE
        ray.get(losses)


if __name__ == "__main__":
    main()
