# SPDX-License-Identifier: Apache-2.0
"""Four evaluators get a list of references to shards of tensors, and each of them unpickles all shards.

Source: ray-project/ray#30615, https://docs.ray.io/en/latest/ray-core/patterns/nested-ray-get.html
Cause: tensors in the pickle
"""

import ray
import torch
from measured import FIXED, measured_steps


@ray.remote
class Loader:
    def load(self, value):  # CAUSE
        tensor = torch.full((1024, 4096), value)  # 16 MiB
        return tensor.numpy() if FIXED else tensor  # CAUSE


@ray.remote
class Evaluator:
    def evaluate(self, shards):
        total = 0.0
        for tensor in ray.get(shards):  # CAUSE
            total += float(tensor[0].sum())
        return total


def main():
    ray.init(num_cpus=8, object_store_memory=2 * 10**9)
    loaders = [Loader.remote() for _ in range(4)]
    evaluators = [Evaluator.remote() for _ in range(4)]
    for step in measured_steps(10):
        values = [4.0 * step + number for number in range(4)]
        shards = [
            loader.load.remote(value)  # CAUSE
            for loader, value in zip(loaders, values, strict=True)
        ]
        ray.get([evaluator.evaluate.remote(shards) for evaluator in evaluators])


if __name__ == "__main__":
    main()
