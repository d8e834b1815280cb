# SPDX-License-Identifier: Apache-2.0
"""Show why Ray's metric `single client put gigabytes` has two values: puts into new memory of its store are slow.

    python3 -m examples.put_gigabytes             both values for the Ray that is installed
    python3 -m examples.put_gigabytes FILE        the same, and add them to a file; the table has all that is in it

A put copies an array into shared memory. The first time, each page of 4 KiB is a page fault.
"""

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median

from common.origin import describe_origin

PUT_BYTES = 200 * 2**20
STORE_BYTES = 2 * 2**30
PUTS = 40


def measure() -> dict:
    """Return the version of Ray, and seconds and page faults of each put."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # listen on the loopback interface only
    import numpy
    import ray

    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        object_store_memory=STORE_BYTES,
        log_to_driver=False,
    )
    array = numpy.ones(PUT_BYTES, dtype=numpy.uint8)
    puts = []
    for _ in range(PUTS):
        faults = getrusage(RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        ray.put(array)  # the object is freed at once
        puts.append((time.perf_counter() - start, getrusage(RUSAGE_SELF).ru_minflt - faults))
    return {
        "ray": ray.__version__,
        "preallocated": "RAY_preallocate_plasma_memory" in os.environ,
        "puts": puts,
        "origin": describe_origin(),
    }


def make_table(runs: list[dict]) -> str:
    """Return a row per version of Ray and kind of memory: the median of the runs, and the smallest and largest one."""
    found = defaultdict(list)
    for run in runs:
        for is_new in (True, False):
            puts = [put for put in run["puts"] if (put[1] > PUT_BYTES / 4096 / 2) == is_new]
            key = (
                run["ray"] + ", preallocated" * run["preallocated"],
                "new" if is_new else "used before",
            )
            if puts:
                seconds, faults = map(median, zip(*puts, strict=True))
                found[key].append((PUT_BYTES / 2**30 / seconds, len(puts), faults))
    lines = [
        "| Ray | memory of the store | puts per run | GiB/s | page faults per put |",
        "|---|---|---|---|---|",
    ]
    for key, rows in sorted(found.items()):
        rates, counts, faults = zip(*rows, strict=True)
        rate = f"{median(rates):.1f} ({min(rates):.1f} to {max(rates):.1f})"
        lines.append(
            f"| {' | '.join(key)} | {median(counts):.0f} | {rate} | {median(faults):,.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    runs = [measure()]
    for path in map(Path, sys.argv[1:]):
        with path.open("a+") as file:
            file.write(json.dumps(runs[0]) + "\n")
        runs = [json.loads(line) for line in path.read_text().splitlines()]
    print(make_table(runs))
