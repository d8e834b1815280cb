# SPDX-License-Identifier: Apache-2.0
"""Add the puts of put_gigabytes.py with the Ray that is installed to a file, and print the table of all that is in it.

    python3 -m examples.put_records FILE

`make put-gigabytes` calls it for several versions.
"""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from common.origin import describe_origin
from examples import put_gigabytes


def measure() -> dict:
    """Return the version of Ray, seconds and page faults of each put, and where and when they were measured."""
    return {
        "ray": put_gigabytes.ray.__version__,
        "preallocated": "RAY_preallocate_plasma_memory" in os.environ,
        "puts": put_gigabytes.measure(),
        "origin": describe_origin(),
    }


def make_table(runs: list[dict]) -> str:
    """Return a row per version of Ray and kind of memory: the median of the runs, and the smallest and largest one."""
    found = defaultdict(list)
    for run in runs:
        for is_new in (True, False):
            puts = [put for put in run["puts"] if (put[1] > put_gigabytes.MANY_FAULTS) == is_new]
            key = (
                run["ray"] + ", preallocated" * run["preallocated"],
                "new" if is_new else "used before",
            )
            if puts:
                seconds, faults = map(median, zip(*puts, strict=True))
                rate = put_gigabytes.PUT_BYTES / 2**30 / seconds
                found[key].append((rate, len(puts), faults))
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
    path = Path(sys.argv[1])
    with path.open("a+") as file:
        file.write(json.dumps(measure()) + "\n")
    print(make_table([json.loads(line) for line in path.read_text().splitlines()]))
