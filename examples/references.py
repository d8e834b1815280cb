# SPDX-License-Identifier: Apache-2.0
"""Send a new tensor per step to a trainer: through the driver, or by reference. The trainer gets a copy in both."""

from resource import RUSAGE_SELF, getrusage
from timeit import timeit

import ray
import torch


@ray.remote
class Model:
    def generate(self):
        return torch.ones(2**24)  # 64 MiB

    def train(self, tokens):
        assert tokens[-1] == 1


def count_page_faults():
    calls = [one.__ray_call__.remote(lambda _: getrusage(RUSAGE_SELF).ru_minflt) for one in models]
    return sum(ray.get(calls)) + getrusage(RUSAGE_SELF).ru_minflt


def measure(name, step):
    timeit(step, number=3)  # untimed
    before = count_page_faults()
    seconds = timeit(step, number=20) / 20
    faults = (count_page_faults() - before) / 20
    print(f"{name:<13}{seconds * 1e3:8.1f} ms per step, {faults:9,.0f} page faults")


ray.init(include_dashboard=False, log_to_driver=False)
rollout, trainer = models = [Model.remote() for _ in range(2)]
measure("values", lambda: ray.get(trainer.train.remote(ray.get(rollout.generate.remote()))))
measure("references", lambda: ray.get(trainer.train.remote(rollout.generate.remote())))
