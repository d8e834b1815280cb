# SPDX-License-Identifier: Apache-2.0
"""Ray Data shuffles 130 MB of samples before each epoch, and the driver reads them in batches.

With LOCAL=1, the order of blocks is shuffled, and rows only within a buffer, as Ray's page about shuffling advises.
"""

import os

import numpy as np
import ray

from examples.profiled.steps import timed_steps

IS_LOCAL = "LOCAL" in os.environ


def make_samples(batch):
    count = len(batch["id"])
    return {"image": np.ones((count, 64, 64), np.uint8), "label": batch["id"]}


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    samples = ray.data.range(32_000, override_num_blocks=16).map_batches(make_samples).materialize()
    for _ in timed_steps(6):
        if IS_LOCAL:
            epoch = samples.randomize_block_order()
            batches = epoch.iter_batches(batch_size=512, local_shuffle_buffer_size=2048)
        else:
            batches = samples.random_shuffle().iter_batches(batch_size=512)
        count = sum(len(batch["label"]) for batch in batches)
    print(f"{count} samples")
