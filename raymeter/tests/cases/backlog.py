# SPDX-License-Identifier: Apache-2.0
"""Forty tasks are submitted at once, each with an argument of 40 MiB: they wait in a store of 300 MB, which spills.

Source: ray-project/ray#28051
Cause: a backlog of large arguments
Or: the object store spills
"""

import time

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
def train(batch):
    time.sleep(0.04)
    return float(batch[0, 0])


def main():
    ray.init(num_cpus=2, object_store_memory=300 * 10**6)
    batch = np.ones((1280, 8192), np.float32)  # 40 MiB
    for step in measured_steps(6):
        pending = []
        for number in range(40):
            batch[0, 0] = 40 * step + number
            pending.append(train.remote(batch))  # CAUSE
            if FIXED and len(pending) == 3:
                _, pending = ray.wait(pending)
        ray.get(pending)


if __name__ == "__main__":
    main()
