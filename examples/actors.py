# SPDX-License-Identifier: Apache-2.0
"""The two actors of all examples, what starts them, and what prints the times before and after a change."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import ray
import torch


class Rollout:
    def __init__(self) -> None:
        self.tokens = torch.arange(8 * 2**20)  # 64 MiB

    def generate(self, prompt: str = "") -> torch.Tensor:
        return self.tokens


class Trainer:
    def train(self, tokens: torch.Tensor) -> int:
        return int(tokens[-1])


def start(*classes: type) -> list[Any]:
    """Join the cluster of RAY_ADDRESS, or the one that runs here, or start one; start an actor of each class."""
    ray.init(include_dashboard=False, log_to_driver=False)
    return [ray.remote(cls).remote() for cls in classes]


def print_times(before: Callable[[], Any], after: Callable[[], Any], repeats: int = 9) -> None:
    """Call each function several times, check that their results are equal, and print the median time of each."""
    results = set()
    texts = []
    for name, send in (("before", before), ("after", after)):
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            results.add(send())
            seconds.append(time.perf_counter() - start)
        texts.append(f"{name}: {median(seconds[2:]) * 1e3:.1f} ms")
    assert len(results) == 1, "before and after, the results are different"
    print(*texts, sep=", ")
