# SPDX-License-Identifier: Apache-2.0
"""Each task computes in as many threads as it asks for CPUs, so that it needs all of them.

Source: https://docs.ray.io/en/latest/ray-core/scheduling/resources.html
Cause: none
Harmful: tasks ask for more CPUs than they use
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import ray
from measured import measured_steps

THREADS = 2
BYTES = 16 * 2**20


def digest(number):
    """Return the digest of many bytes, for which Python lets other threads run."""
    data = bytes([number]) * BYTES
    return hashlib.sha256(data).hexdigest()


@ray.remote(num_cpus=THREADS)
def verify(first):
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(digest, [first, first + 1]))


def main():
    ray.init(num_cpus=2)
    for _ in measured_steps(10):
        parts = ray.get([verify.remote(0), verify.remote(2), verify.remote(4)])
        if len({digest for part in parts for digest in part}) != 6:
            raise ValueError("two parts are the same")


if __name__ == "__main__":
    main()
