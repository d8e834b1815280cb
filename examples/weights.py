# SPDX-License-Identifier: Apache-2.0
"""Send weights from a trainer (the driver) to three rollouts: by value, or by one reference. Each keeps a copy."""

from resource import RUSAGE_SELF, getrusage
from timeit import timeit

import ray
import torch


@ray.remote
class Rollout:
    def load(self, weights):
        self.weights = weights


def count_page_faults():
    calls = [one.__ray_call__.remote(lambda _: getrusage(RUSAGE_SELF).ru_minflt) for one in readers]
    return sum(ray.get(calls)) + getrusage(RUSAGE_SELF).ru_minflt


def measure(name, step):
    timeit(step, number=3)  # untimed
    before = count_page_faults()
    seconds = timeit(step, number=20) / 20
    faults = (count_page_faults() - before) / 20
    print(f"{name:<13}{seconds * 1e3:8.1f} ms per step, {faults:9,.0f} page faults")


def send(weights):
    ray.get([reader.load.remote(weights) for reader in readers])


ray.init(include_dashboard=False, log_to_driver=False)
readers = [Rollout.remote() for _ in range(3)]
weights = torch.ones(2**24)  # 64 MiB
measure("values", lambda: send(weights))
measure("reference", lambda: send(ray.put(weights)))
