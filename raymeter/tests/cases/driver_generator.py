# SPDX-License-Identifier: Apache-2.0
"""The driver gets each chunk of a streaming generator, only to pass it on to a writer.

Source: https://docs.ray.io/en/latest/ray-core/patterns/unnecessary-ray-get.html
Cause: through a process that only passes it on
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Producer:
    def stream(self, step):
        for chunk in range(8):
            yield np.full((640, 8192), 8 * step + chunk, np.float32)  # 20 MiB


@ray.remote
class Writer:
    def write(self, chunk):
        return float(chunk[0].sum())


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    producer = Producer.remote()
    writer = Writer.remote()
    for step in measured_steps(40):
        written = []
        stream = producer.stream.options(num_returns="streaming").remote(step)
        for reference in stream:
            chunk = reference if FIXED else ray.get(reference)  # CAUSE
            written.append(writer.write.remote(chunk))  # CAUSE
        ray.get(written)


if __name__ == "__main__":
    main()
