# SPDX-License-Identifier: Apache-2.0
"""A class of images reduces itself to a list of rows of bytes, although its array could stay outside of the pickle.

Source: https://docs.ray.io/en/latest/ray-core/objects/serialization.html
Cause: the class pickles itself
"""

import numpy as np
import ray
from measured import FIXED, measured_steps

SHAPE = (4096, 4096, 4)


class Image:
    def __init__(self, pixels):
        self.pixels = pixels

    def __reduce__(self):  # CAUSE
        if FIXED:
            return Image, (self.pixels,)
        return image_from_rows, ([row.tobytes() for row in self.pixels],)  # CAUSE


def image_from_rows(rows):
    pixels = np.frombuffer(b"".join(rows), np.uint8)
    return Image(pixels.reshape(SHAPE))


@ray.remote
class Detector:
    def detect(self, image):
        return int(image.pixels[0, 0, 0])


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    detector = Detector.remote()
    image = Image(np.ones(SHAPE, np.uint8))  # 64 MiB
    for step in measured_steps(15):
        image.pixels[0] = step
        ray.get(detector.detect.remote(image))  # CAUSE


if __name__ == "__main__":
    main()
