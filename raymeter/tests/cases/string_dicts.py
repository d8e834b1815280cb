# SPDX-License-Identifier: Apache-2.0
"""A message has one large array, and a dict of 100,000 strings that takes nearly all of the time.

Source: https://discuss.ray.io/t/on-task-deserealization-and-effective-usage-of-plasma-store/4205
Cause: Python objects in the pickle
"""

import numpy as np
import pyarrow as pa
import ray
from measured import FIXED, measured_steps


@ray.remote
class Worker:
    def work(self, message):
        return float(message["values"][0])


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    worker = Worker.remote()
    labels = {f"user-{number}": f"label {number}" for number in range(100_000)}
    if FIXED:
        labels = pa.table({"user": list(labels), "label": list(labels.values())})
    for step in measured_steps(20):
        values = np.full(2_000_000, step, np.float32)  # 8 MiB
        ray.get(worker.work.remote({"values": values, "labels": labels}))  # CAUSE


if __name__ == "__main__":
    main()
