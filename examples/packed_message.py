# SPDX-License-Identifier: Apache-2.0
"""Send hundreds of new tensors per step as they are, or packed into one. The trainer gets a copy in both."""

from resource import RUSAGE_SELF, getrusage
from timeit import timeit

import ray
import torch

LENGTHS = list(range(200, 712))


@ray.remote
class Model:
    def generate(self, pack):
        answers = [torch.full((length,), length) for length in LENGTHS]
        return torch.cat(answers) if pack else answers

    def train(self, message):
        answers = message.split(LENGTHS) if torch.is_tensor(message) else message
        assert [int(answer[-1]) for answer in answers] == LENGTHS


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
measure("many tensors", lambda: ray.get(trainer.train.remote(rollout.generate.remote(pack=False))))
measure("one tensor", lambda: ray.get(trainer.train.remote(rollout.generate.remote(pack=True))))
