# SPDX-License-Identifier: Apache-2.0
"""A camera sends flipped images: a strided array does not leave the pickle, so it is copied three times.

Source: ray-project/ray#19547, ray-project/ray#50731
Cause: arrays that are not contiguous
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote
class Detector:
    def detect(self, image):
        return float(image[0, 0, 0])


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    detector = Detector.remote()
    images = np.random.default_rng(0).integers(0, 255, (4000, 4000, 3), np.uint8)  # 46 MiB
    flipped = images[:, :, ::-1]
    contiguous = np.ascontiguousarray(flipped)
    for step in measured_steps(15):
        images[0, 0] = step
        contiguous[0, 0] = step
        image = contiguous if FIXED else flipped
        ray.get(detector.detect.remote(image))  # CAUSE


if __name__ == "__main__":
    main()
