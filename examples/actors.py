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
    """Join the cluster of RAY_ADDRESS, or start one on this machine, and start an actor of each class."""
    ray.init(include_dashboard=False, log_to_driver=False)
    return [ray.remote(cls).remote() for cls in classes]


def print_times(before: Callable[[], Any], after: Callable[[], Any], repeats: int = 9) -> None:
    """Call both functions several times, check that their results are equal, and print the median time of each."""
    seconds: dict[str, list[float]] = {"before": [], "after": []}
    for _ in range(repeats):
        results = []
        for name, send in (("before", before), ("after", after)):
            start = time.perf_counter()
            results.append(send())
            seconds[name].append(time.perf_counter() - start)
        assert results[0] == results[1], "before and after, the results are different"
    print(*(f"{name}: {median(times[2:]) * 1e3:.1f} ms" for name, times in seconds.items()), sep=", ")
