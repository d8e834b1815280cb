# SPDX-License-Identifier: Apache-2.0
"""Eight readers get a slice of a record batch each, and each slice brings the buffers of the whole batch.

Source: ray-project/ray#62295, ray-project/ray#34352
Cause: views bring their whole storage
Harmful: the same content is sent again
"""

import numpy as np
import pyarrow as pa
import ray
from measured import FIXED, measured_steps

ROWS = 4_000_000
PART = ROWS // 8


@ray.remote
class Reader:
    def read(self, batch):
        return batch.num_rows


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    readers = [Reader.remote() for _ in range(2)]
    for step in measured_steps(100):
        values = np.arange(step, step + ROWS, dtype=np.float64)  # 31 MiB
        batch = pa.RecordBatch.from_arrays([values], names=["value"])
        rows = []
        for number in range(8):
            part = batch.slice(number * PART, PART)
            if FIXED:
                part = pa.Table.from_batches([part])  # Ray sends only the rows of a table
            rows.append(readers[number % 2].read.remote(part))  # CAUSE
        ray.get(rows)


if __name__ == "__main__":
    main()
