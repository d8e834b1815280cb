# SPDX-License-Identifier: Apache-2.0
"""Each of 40 requests holds a list of 500 references, which Ray registers with their owner one by one.

Source: ray-project/ray#17803, ray-project/ray#21430
Cause: many references in one message
"""

import ray
from measured import FIXED, measured_steps


@ray.remote
class Worker:
    def count(self, references):
        return len(references)


def main():
    ray.init(num_cpus=2, object_store_memory=10**9)
    worker = Worker.remote()
    shards = [ray.put(number) for number in range(500)]
    nested = ray.put(shards)
    argument = [nested] if FIXED else shards
    for _ in measured_steps(12):
        ray.get([worker.count.remote([argument]) for _ in range(40)])  # CAUSE


if __name__ == "__main__":
    main()
