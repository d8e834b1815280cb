# SPDX-License-Identifier: Apache-2.0
"""What the examples with code of this project share: two actors, what starts them, and what measures a step."""

from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from timeit import timeit
from typing import Any

import ray
import torch

COUNT = 8 * 2**20  # 64 MiB


class Rollout:
    def __init__(self) -> None:
        self.tokens = torch.arange(COUNT)

    def generate(self) -> torch.Tensor:
        return self.tokens


class Trainer:
    def train(self, tokens: torch.Tensor) -> int:
        return int(tokens[-1])


def start(*classes: type) -> list[Any]:
    """Join the cluster of RAY_ADDRESS, or the one that runs here, or start one; start an actor of each class."""
    ray.init(include_dashboard=False, log_to_driver=False)
    return [ray.remote(cls).remote() for cls in classes]


def count_page_faults(actors: list[Any]) -> int:
    """Return the minor page faults of this process and of these actors."""
    calls = [one.__ray_call__.remote(lambda _: getrusage(RUSAGE_SELF).ru_minflt) for one in actors]
    return sum(ray.get(calls)) + getrusage(RUSAGE_SELF).ru_minflt


def measure(name: str, step: Callable[[], int], actors: list[Any]) -> None:
    """Print the mean time and page faults of 20 steps, after 3 untimed ones. Each returns the last token."""
    assert [step() for _ in range(3)] == [COUNT - 1] * 3
    before = count_page_faults(actors)
    seconds = timeit(step, number=20) / 20
    faults = (count_page_faults(actors) - before) / 20
    print(f"{name:<13}{seconds * 1e3:8.1f} ms per step, {faults:9,.0f} page faults")
