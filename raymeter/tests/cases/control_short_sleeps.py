# SPDX-License-Identifier: Apache-2.0
"""The driver writes its log while two workers wait for a service, and looks every 4 ms whether they are ready.

Source: https://docs.ray.io/en/latest/ray-core/api/doc/ray.wait.html
Cause: none
Harmful: a loop sleeps while results are ready
"""

import time

import ray
from measured import measured_steps


@ray.remote
class Worker:
    def run(self, step):
        time.sleep(0.15)
        return step


def main():
    ray.init(num_cpus=2)
    workers = [Worker.remote() for _ in range(2)]
    log = []
    for step in measured_steps(20):
        refs = [worker.run.remote(step) for worker in workers]
        pending = refs
        while pending:
            log.append(f"{len(pending)} workers")
            time.sleep(0.004)
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=0)
        ray.get(refs)


if __name__ == "__main__":
    main()
