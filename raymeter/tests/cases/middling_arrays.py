# SPDX-License-Identifier: Apache-2.0
"""Two hundred arrays of 128 KiB go to a storage actor in two hundred calls, which cost more than their bytes.

Source: Ascend/ray-ascend#55, meta-pytorch/torchstore#113
Cause: many small calls
"""

import numpy as np
import ray
from measured import FIXED, measured_steps

ARRAYS = 200


@ray.remote
class Storage:
    def __init__(self):
        self.arrays = {}

    def write(self, name, array):
        self.arrays[name] = array

    def write_all(self, arrays):
        self.arrays.update(enumerate(arrays))


def main():
    ray.init(num_cpus=2, object_store_memory=10**9)
    storage = Storage.remote()
    arrays = np.arange(ARRAYS * 32_768, dtype=np.float32).reshape(ARRAYS, 32_768)  # 25 MiB
    for _ in measured_steps(15):
        arrays += 1.0
        if FIXED:
            ray.get(storage.write_all.remote(arrays))
        else:
            ray.get([storage.write.remote(name, arrays[name]) for name in range(ARRAYS)])  # CAUSE


if __name__ == "__main__":
    main()
