# SPDX-License-Identifier: Apache-2.0
"""Put an array into a new object store, until all of it was used: why Ray's metric of puts has two values.

The metric is `single client put gigabytes`. A put copies the array into shared memory of the store. The first time,
each page of 4 KiB there is a page fault.
"""

from resource import RUSAGE_SELF, getrusage
from statistics import mean
from timeit import timeit

import numpy
import ray

PUT_BYTES = 200 * 2**20
MANY_FAULTS = PUT_BYTES / 4096 / 2  # a put with more went into new memory
STORE = {"object_store_memory": 2 * 2**30, "num_cpus": 1, "include_dashboard": False}


def measure(puts=40):
    """Return the seconds and the page faults of each put."""
    ray.init(address="local", log_to_driver=False, **STORE)
    array = numpy.ones(PUT_BYTES, dtype=numpy.uint8)
    measured = []
    for _ in range(puts):
        before = getrusage(RUSAGE_SELF).ru_minflt
        seconds = timeit(lambda: ray.put(array), number=1)  # the object is freed at once
        measured.append((seconds, getrusage(RUSAGE_SELF).ru_minflt - before))
    return measured


if __name__ == "__main__":
    puts = measure()
    new = [put for put in puts if put[1] > MANY_FAULTS]
    used = [put for put in puts if put[1] <= MANY_FAULTS]
    for name, chosen in (("new memory", new), ("used before", used)):
        seconds, faults = map(mean, zip(*chosen, strict=True))
        print(f"{name:<13}{seconds * 1e3:8.1f} ms per step, {faults:9,.0f} page faults")
