# SPDX-License-Identifier: Apache-2.0
"""A table of 2,000 chunks is sent in each step: the time goes with the number of chunks, not with 8 MiB of bytes.

Source: ray-project/ray#34352, ray-project/ray#62579
Cause: many small arrays
"""

import numpy as np
import pyarrow as pa
import ray
from measured import FIXED, measured_steps


@ray.remote
class Reader:
    def __init__(self):
        self.values = np.arange(10**6, dtype=np.float64)
        chunks = [self.values] if FIXED else self.values.reshape(2000, 500)
        self.table = pa.table({"value": pa.chunked_array(chunks)})

    def read(self, step):  # CAUSE
        self.values[::500] = step  # the table looks at this memory
        return self.table  # CAUSE


@ray.remote
class Mapper:
    def map(self, table):
        return table.num_rows


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    reader = Reader.remote()
    mapper = Mapper.remote()
    for step in measured_steps(20):
        ray.get(mapper.map.remote(reader.read.remote(step)))  # CAUSE


if __name__ == "__main__":
    main()
