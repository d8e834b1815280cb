# SPDX-License-Identifier: Apache-2.0
"""The driver and a worker exchange batches of 96 MiB as values of two queues, so they pass through their actors.

Source: ray-project/ray#11162
Cause: through a process that only passes it on
"""

import numpy as np
import ray
from measured import FIXED, measured_steps, number_of_steps
from ray.util.queue import Queue

STEPS = 60


def send(queue, batch):
    value = [ray.put(batch)] if FIXED else batch
    queue.put(value)  # CAUSE


def receive(queue):
    value = queue.get()  # CAUSE
    return ray.get(value[0]) if FIXED else value


@ray.remote
class Worker:
    def run(self, requests, answers, steps):
        answer = np.ones((3072, 8192), np.float32)  # 96 MiB
        for _ in range(steps):
            answer[0] = receive(requests)[0]
            send(answers, answer)


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    requests = Queue(maxsize=2)
    answers = Queue(maxsize=2)
    worker = Worker.remote()
    running = worker.run.remote(requests, answers, number_of_steps(STEPS))
    batch = np.ones((3072, 8192), np.float32)  # 96 MiB
    for step in measured_steps(STEPS):
        batch[0] = step
        send(requests, batch)
        receive(answers)
    ray.get(running)


if __name__ == "__main__":
    main()
