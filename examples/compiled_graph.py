# SPDX-License-Identifier: Apache-2.0
"""Send a new tensor per step by calls, or by a compiled graph. The trainer gets a copy in both."""

from resource import RUSAGE_SELF, getrusage
from timeit import timeit

import ray
import torch
from ray.dag import DAGContext, InputNode


@ray.remote
class Model:
    def generate(self, value):
        return torch.full((2**24,), value)  # 64 MiB

    def train(self, tokens):
        assert tokens[-1] == 1


def count_page_faults():
    calls = [one.__ray_call__.remote(lambda _: getrusage(RUSAGE_SELF).ru_minflt) for one in models]
    return sum(ray.get(calls)) + getrusage(RUSAGE_SELF).ru_minflt


def measure(name, step):
    timeit(step, number=3)  # untimed
    first = count_page_faults()
    ms = timeit(step, number=20) / 20 * 1e3
    print(f"{name:13}{ms:8.1f} ms per step, {(count_page_faults() - first) / 20:9,.0f} page faults")


ray.init(include_dashboard=False, log_to_driver=False)
rollout, trainer = models = [Model.remote() for _ in range(2)]
measure("calls", lambda: ray.get(trainer.train.remote(rollout.generate.remote(1.0))))
with InputNode() as value:
    tokens = rollout.generate.bind(value).with_tensor_transport("shm")
    graph = trainer.train.bind(tokens).experimental_compile(_max_inflight_executions=2)
measure("graph", lambda: ray.get(graph.execute(1.0)))
DAGContext.get_current().teardown_timeout = 1  # Ray kills the trainer, which does not stop itself
