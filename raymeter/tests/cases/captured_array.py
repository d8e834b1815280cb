# SPDX-License-Identifier: Apache-2.0
"""The remote function of each epoch captures 40 MiB of weights in its closure, so they travel with its code.

Source: https://docs.ray.io/en/latest/ray-core/patterns/closure-capture-large-objects.html
Cause: a function brings data with it
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
def score_with(weights, shard):
    return float(weights[shard::4].sum())


def evaluate(weights):
    if FIXED:
        reference = ray.put(weights)
        return ray.get([score_with.remote(reference, shard) for shard in range(4)])

    @ray.remote
    def score(shard):  # CAUSE
        return float(weights[shard::4].sum())  # CAUSE

    return ray.get([score.remote(shard) for shard in range(4)])  # CAUSE


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    weights = np.ones((2048, 5120), np.float32)  # 40 MiB
    for _ in measured_steps(10):
        weights *= 0.99
        evaluate(weights)


if __name__ == "__main__":
    main()
