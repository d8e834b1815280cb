# SPDX-License-Identifier: Apache-2.0
"""A table of 2,000 columns is the argument of each call: the time goes with the columns, not with 15 MiB of bytes.

Source: ray-project/ray#63477, ray-project/ray#63525
Cause: many small arrays
"""

import numpy as np
import pyarrow as pa
import ray
from measured import FIXED, measured_steps

COLUMNS = 2000
ROWS = 1000


@ray.remote
class Mapper:
    def map(self, table):
        return table.num_rows


def make_table(values):
    if FIXED:
        wide = pa.FixedSizeListArray.from_arrays(values, COLUMNS)
        return pa.table({"features": wide})
    columns = values.reshape(COLUMNS, ROWS)
    return pa.table({f"feature{number}": column for number, column in enumerate(columns)})


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    mapper = Mapper.remote()
    values = np.arange(ROWS * COLUMNS, dtype=np.float64)
    table = make_table(values)
    for _ in measured_steps(15):
        values += 1.0  # the table looks at this memory
        ray.get(mapper.map.remote(table))  # CAUSE


if __name__ == "__main__":
    main()
