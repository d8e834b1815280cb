# SPDX-License-Identifier: Apache-2.0
"""The driver stores the same reference weights again in each step, although nothing changes them.

Source: https://docs.ray.io/en/latest/ray-core/patterns/pass-large-arg-by-value.html
Cause: the same content is sent again
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Scorer:
    def score(self, weights, step):
        return float(weights["embedding"][step].sum())


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    scorers = [Scorer.remote() for _ in range(2)]
    weights = {name: np.ones((4096, 4096), np.float32) for name in ("embedding", "head")}  # 128 MiB
    reference = ray.put(weights)
    for step in measured_steps(20):
        if not FIXED:
            reference = ray.put(weights)  # CAUSE
        ray.get([scorer.score.remote(reference, step) for scorer in scorers])


if __name__ == "__main__":
    main()
