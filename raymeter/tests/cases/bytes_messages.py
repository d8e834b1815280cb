# SPDX-License-Identifier: Apache-2.0
"""Two readers get images as bytes, which each of them copies; an array would be read in the object store.

Source: ray-project/ray#20801
Cause: bytes in the pickle
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Camera:
    def __init__(self):
        self.pixels = np.ones(64 * 2**20, np.uint8)  # 64 MiB

    def take(self, step):  # CAUSE
        self.pixels[::64] = step
        image = self.pixels.tobytes()
        if FIXED:
            return np.frombuffer(image, np.uint8)
        return image  # CAUSE


@ray.remote
class Reader:
    def read(self, image):
        return image[0]


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    camera = Camera.remote()
    readers = [Reader.remote() for _ in range(2)]
    for step in measured_steps(60):
        image = camera.take.remote(step)  # CAUSE
        ray.get([reader.read.remote(image) for reader in readers])


if __name__ == "__main__":
    main()
