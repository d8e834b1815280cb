# SPDX-License-Identifier: Apache-2.0
"""A method of an async actor blocks its event loop, so ten requests are answered one after the other.

Source: ray-project/ray#40328, ray-project/ray#7197
Cause: an async method blocks its event loop
"""

import asyncio
import time

import ray
from measured import FIXED, measured_steps


@ray.remote
class Judge:
    async def score(self, answer):  # CAUSE
        if FIXED:
            await asyncio.sleep(0.02)  # a request to a service
        else:
            time.sleep(0.02)  # CAUSE
        return len(answer)


def main():
    ray.init(num_cpus=2)
    judge = Judge.remote()
    for _ in measured_steps(20):
        ray.get([judge.score.remote("an answer") for _ in range(10)])


if __name__ == "__main__":
    main()
