# SPDX-License-Identifier: Apache-2.0
"""Free a block of 31 MiB in an actor before it sends messages of 16 MiB: glibc then keeps most of their memory.

When a block that glibc took from the kernel is freed, glibc raises its limits: smaller blocks come from the heap, which
keeps up to twice the size of that block (M_MMAP_THRESHOLD in `man mallopt`). Blocks above 32 MiB have no effect."""

from resource import RUSAGE_SELF, getrusage
from timeit import timeit

import ray
import torch


@ray.remote(num_cpus=0)
class Model:
    def __init__(self, freed_bytes):
        torch.empty(freed_bytes, dtype=torch.uint8)  # freed at once: nothing holds it
        self.tokens = torch.ones(2**22)  # 16 MiB

    def step(self, *tokens):
        return None if tokens else self.tokens

    def count_page_faults(self):
        return getrusage(RUSAGE_SELF).ru_minflt


def measure(name, freed_bytes):
    rollout, trainer = models = [Model.remote(freed_bytes) for _ in range(2)]
    for number in (15, 40):  # only the last 40 steps count
        before = sum(ray.get([model.count_page_faults.remote() for model in models]))
        seconds = timeit(lambda: ray.get(trainer.step.remote(rollout.step.remote())), number=number)
        after = sum(ray.get([model.count_page_faults.remote() for model in models]))
        faults = (after - before) / number
    print(f"{name:<13}{seconds / 40 * 1e3:8.1f} ms per step, {faults:9,.0f} page faults")


ray.init(include_dashboard=False, log_to_driver=False)
measure("no block", 0)
measure("freed block", 31 * 2**20)
