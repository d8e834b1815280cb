# SPDX-License-Identifier: Apache-2.0
"""Send a new tensor per step by reference. The processes return freed memory to the kernel, or keep it.

The calls are the same, and the trainer gets a copy in both.
"""

from resource import RUSAGE_SELF, getrusage
from timeit import Timer

import ray
import torch

RETAIN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000",
                 "MALLOC_TOP_PAD_": "67108864", "MALLOC_ARENA_MAX": "1"}  # fmt: skip  # a table


@ray.remote
class Model:
    def generate(self):
        return torch.ones(2**24)  # 64 MiB

    def train(self, tokens):
        assert tokens[-1] == 1


def count_page_faults():
    calls = [one.__ray_call__.remote(lambda _: getrusage(RUSAGE_SELF).ru_minflt) for one in models]
    return sum(ray.get(calls)) + getrusage(RUSAGE_SELF).ru_minflt


ray.init(include_dashboard=False, log_to_driver=False)
timer = Timer(lambda: ray.get(trainer.train.remote(rollout.generate.remote())))
for name, variables in (("default", {}), ("kept memory", RETAIN_MEMORY)):
    settings = {"env_vars": variables}  # glibc reads them when a process starts
    rollout, trainer = models = [Model.options(runtime_env=settings).remote() for _ in range(2)]
    timer.timeit(3)  # untimed
    before = count_page_faults()
    seconds = timer.timeit(20) / 20
    faults = (count_page_faults() - before) / 20
    print(f"{name:<13}{seconds * 1e3:8.1f} ms per step, {faults:9,.0f} page faults")
