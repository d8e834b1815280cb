# SPDX-License-Identifier: Apache-2.0
"""A loader returns a data frame whose columns hold Python strings, which are pickled one by one.

Source: ray-project/ray#907, ray-project/ray#31108
Cause: a data frame in the pickle
Or: Python objects in the pickle
Needs: pandas
"""

import numpy as np
import pandas as pd
import pyarrow as pa
import ray
from measured import FIXED, measured_steps

ROWS = 200_000


@ray.remote
class Loader:
    def __init__(self):
        prompts = [f"prompt number {number} of a user" for number in range(ROWS)]
        self.frame = pd.DataFrame({"prompt": pd.Series(prompts, dtype=object)})
        self.table = pa.Table.from_pandas(self.frame)

    def load(self, step):  # CAUSE
        scores = np.full(ROWS, step)
        if FIXED:
            return self.table.append_column("score", pa.array(scores))
        return self.frame.assign(score=scores)  # CAUSE


@ray.remote
class Counter:
    def count(self, frame):
        return len(frame)


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    loader = Loader.remote()
    counter = Counter.remote()
    for step in measured_steps(15):
        ray.get(counter.count.remote(loader.load.remote(step)))  # CAUSE


if __name__ == "__main__":
    main()
