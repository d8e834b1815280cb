"""What this machine allows at best: one warm copy of every edge."""

import os
import time

import torch

from common.plan.plan import Plan
from common.runtime.gpus import synchronise


class Ceiling:
    """Seconds for one warm copy of every edge, one after the other.

    This is what a trip costs if each reader gets bytes of its own and nothing else happens.
    """

    def __init__(self, plan: Plan) -> None:
        self.threads = plan.options.threads
        self.pairs = [
            (
                torch.ones(edge.bytes or 1, dtype=torch.uint8, device=plan.gpu_of(plan.flow.actor(edge.source))),
                torch.zeros(edge.bytes or 1, dtype=torch.uint8, device=plan.gpu_of(plan.flow.actor(edge.reader))),
            )
            for edge in plan.flow.edges
        ]

    def measure(self, threads: int | None = None, passes: int = 6) -> list[float]:
        """One sample a pass, after two that are not timed.

        Args:
            threads: how many CPU threads share each copy; None: as many as a role has.
        """
        usual_threads = torch.get_num_threads()
        torch.set_num_threads(threads or self.threads)
        samples = []
        for _ in range(2 + passes):
            start = time.perf_counter()
            for source, destination in self.pairs:
                destination.copy_(source)
            synchronise()
            samples.append(round(time.perf_counter() - start, 9))
        torch.set_num_threads(usual_threads)
        return samples[2:]

    def measure_all_cores(self) -> list[float]:
        """The same with every copy shared by all cores."""
        return self.measure(len(os.sched_getaffinity(0)))
