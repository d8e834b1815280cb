# SPDX-License-Identifier: Apache-2.0
"""A task returns a polars frame, which is copied into the pickle; as an Arrow table it stays in its buffers.

Source: ray-project/ray#36068, pola-rs/polars#22396
Cause: a data frame in the pickle
Needs: polars
"""

import numpy as np
import polars as pl
import ray
from measured import FIXED, measured_steps


@ray.remote
class Loader:
    def __init__(self):
        columns = {f"column{number}": np.arange(10**6) for number in range(8)}
        self.frame = pl.DataFrame(columns)  # 61 MiB

    def load(self, step):  # CAUSE
        frame = self.frame.with_columns(pl.lit(step).alias("step"))
        return frame.to_arrow() if FIXED else frame  # CAUSE


@ray.remote
class Counter:
    def count(self, frame):
        return len(frame)


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    loader = Loader.remote()
    counter = Counter.remote()
    for step in measured_steps(15):
        ray.get(counter.count.remote(loader.load.remote(step)))  # CAUSE


if __name__ == "__main__":
    main()
