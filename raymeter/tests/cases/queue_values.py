"""A producer and a consumer exchange batches of 50 MiB as values of ray.util.queue, so they pass through its actor.

Source: ray-project/ray#11162
Cause: through a process that only passes it on
"""

import time

import numpy as np
import ray
from measured import FIXED, number_of_steps, print_times
from ray.util.queue import Queue


@ray.remote
class Producer:
    def run(self, queue, steps):
        batch = np.ones((1600, 8192), np.float32)  # 50 MiB
        for _ in range(steps):
            batch[0] += 1.0
            value = [ray.put(batch)] if FIXED else batch
            queue.put(value)  # CAUSE


@ray.remote
class Consumer:
    def run(self, queue, steps):
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            batch = queue.get()  # CAUSE
            if FIXED:
                batch = ray.get(batch[0])
            batch[::64].sum()
            seconds.append(time.perf_counter() - start)
        return seconds


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    steps = number_of_steps(30)
    queue = Queue(maxsize=2)
    producer = Producer.remote()
    consumer = Consumer.remote()
    producing = producer.run.remote(queue, steps)
    seconds = ray.get(consumer.run.remote(queue, steps))
    ray.get(producing)
    print_times(seconds)


if __name__ == "__main__":
    main()
