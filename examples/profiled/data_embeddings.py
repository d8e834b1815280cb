# SPDX-License-Identifier: Apache-2.0
"""Ray Data computes an embedding of each row, and the driver reads them in batches, in each of six epochs.

The function returns lists of numbers, as `model.encode(texts).tolist()` does; with ARRAYS=1, arrays.
"""

import os

import numpy as np
import ray

from examples.profiled.steps import timed_steps

ROWS = 16_000
NUMBERS = 256
WITH_ARRAYS = "ARRAYS" in os.environ


WEIGHTS = np.random.default_rng(0).random((8, NUMBERS), dtype=np.float32)


def embed(batch):
    features = np.stack([batch["id"] % (number + 2) for number in range(8)], axis=1)
    embeddings = features.astype(np.float32) @ WEIGHTS
    batch["embedding"] = embeddings if WITH_ARRAYS else embeddings.tolist()
    return batch


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.range(ROWS, override_num_blocks=8).materialize()
    embedded = rows.map_batches(embed, batch_size=1000)
    for _ in timed_steps(6):
        total = 0.0
        for batch in embedded.iter_batches(batch_size=1000):
            total += float(batch["embedding"][0][0])
    print(f"sum {total:.1f}")
