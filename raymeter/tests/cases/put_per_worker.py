# SPDX-License-Identifier: Apache-2.0
"""ray.put stands inside of the loop over the workers, so the same batch is stored once for each of them.

Source: verl-project/verl#1862
Cause: the same content is sent again
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Worker:
    def train(self, batch):
        return float(batch["tokens"][0].sum())


def store(batch, workers):
    """Return one reference to the batch for each worker."""
    if FIXED:
        reference = ray.put(batch)
        return [reference for _ in workers]
    return [ray.put(batch) for _ in workers]  # CAUSE


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    workers = [Worker.remote() for _ in range(4)]
    for step in measured_steps(60):
        batch = {"tokens": np.full((1600, 4096), step, np.int64)}  # 50 MiB
        references = store(batch, workers)
        losses = [
            worker.train.remote(reference)
            for worker, reference in zip(workers, references, strict=True)
        ]
        ray.get(losses)


if __name__ == "__main__":
    main()
