# SPDX-License-Identifier: Apache-2.0
"""Ray's multiprocessing.Pool finds the nearest of 20,000 vectors for queries, as with the standard library's Pool.

The vectors are an argument of the mapped function (functools.partial); with REFERENCE=1, a reference to them is."""

import os
from functools import partial

import numpy as np
import ray
from ray.util.multiprocessing import Pool

from examples.profiled.steps import timed_steps

BY_REFERENCE = "REFERENCE" in os.environ
VECTORS = 20_000
NUMBERS = 256


def find_nearest(vectors, queries):
    if isinstance(vectors, ray.ObjectRef):
        vectors = ray.get(vectors)
    return (queries @ vectors.T).argmax(axis=1)


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    random = np.random.default_rng(0)
    vectors = random.random((VECTORS, NUMBERS), dtype=np.float32)
    search = partial(find_nearest, ray.put(vectors) if BY_REFERENCE else vectors)
    with Pool(processes=2) as pool:
        for _ in timed_steps(10):
            queries = random.random((16, 8, NUMBERS), dtype=np.float32)
            found = pool.map(search, list(queries))
    print(f"{len(found)} batches")
