# SPDX-License-Identifier: Apache-2.0
"""Arrow tables go by reference from a reader to tasks that aggregate them: they are already read without a copy.

Source: https://docs.ray.io/en/latest/ray-core/objects/serialization.html
Cause: none
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray
from measured import measured_steps

ROWS = 2_000_000


@ray.remote
class Reader:
    def read(self, step):
        columns = {f"column{number}": np.full(ROWS, step + number, float) for number in range(4)}
        return pa.table(columns)  # 61 MiB


@ray.remote
def aggregate(table, column):
    return pc.stddev(table[column]).as_py()


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    reader = Reader.remote()
    for step in measured_steps(20):
        table = reader.read.remote(step)
        ray.get([aggregate.remote(table, f"column{number}") for number in range(4)])


if __name__ == "__main__":
    main()
