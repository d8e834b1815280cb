# SPDX-License-Identifier: Apache-2.0
"""The driver asks every 100 ms whether its workers are ready, although they need 30 ms. Messages are tiny.

Source: ray-project/ray-legacy#400, https://docs.ray.io/en/latest/ray-core/api/doc/ray.wait.html
Cause: a loop sleeps while results are ready
"""

import time

import ray
from measured import FIXED, measured_steps


@ray.remote
class Worker:
    def run(self, step):
        time.sleep(0.03)
        return step


def wait_for_all(pending):
    while pending:
        timeout = None if FIXED else 0
        _, pending = ray.wait(pending, num_returns=len(pending), timeout=timeout)  # CAUSE
        if pending:
            time.sleep(0.1)  # CAUSE


def main():
    ray.init(num_cpus=4)
    workers = [Worker.remote() for _ in range(4)]
    for step in measured_steps(30):
        refs = [worker.run.remote(step) for worker in workers]
        wait_for_all(refs)
        ray.get(refs)


if __name__ == "__main__":
    main()
