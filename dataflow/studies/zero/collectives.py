"""Run the collectives of a task on numbers that every rank can compute, and verify every result.

All sums are whole numbers below 2048, which float16 holds exactly, so the order of additions does not matter.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch

from dataflow.endpoints.actor import Actor
from dataflow.studies.zero.flow import ALL_GATHER, ALL_REDUCE, ITEM_BYTES
from dataflow.trace import recorder

SLOTS = 3  # of numbers that differ from one step to the next, so that a result of another step is wrong
LARGEST_SUM = 2048


def make_sums(sources: Iterable[int], slot: int, ranks: int, begin: int, end: int) -> torch.Tensor:
    """Return the float16 sums of the numbers of these ranks, from index `begin` to `end`.

    The numbers repeat themselves, so only one period is computed. It is odd, so that a part at another place, which in
    general has an even distance, is wrong.
    """
    period = (LARGEST_SUM // ranks - 1) | 1
    index = torch.arange(begin, begin + period)
    pattern = sum((index * (2 * rank + 3) + 17 * slot + 5 * rank) % period for rank in sources)
    return torch.as_tensor(pattern).to(torch.float16).repeat(-(-(end - begin) // period))[: end - begin]


class CollectiveActor(Actor):
    """A rank. Subclasses have all_reduce(numbers), reduce_scatter(result, numbers) and all_gather(result, part)."""

    all_reduce: Callable[[torch.Tensor], None]
    reduce_scatter: Callable[[torch.Tensor, torch.Tensor], None]
    all_gather: Callable[[torch.Tensor, torch.Tensor], None]

    def __init__(self, plan: Any, name: str, *extra: Any) -> None:
        super().__init__(plan, name, *extra)
        (task,) = self.tasks.values()
        self.rank, self.rank_count = self.task_flow.actors.index(name), len(self.task_flow.actors)
        self.items = task.collectives[0].items
        part = self.items // self.rank_count
        self.parts = [(part * rank, part * (rank + 1)) for rank in range(self.rank_count)]
        self.numbers = [make_sums([self.rank], slot, self.rank_count, 0, self.items) for slot in range(SLOTS)]
        # Not the numbers themselves: a reduce-scatter of ray.util.collective writes into its input.
        self.own_parts = [numbers[slice(*self.parts[self.rank])].clone() for numbers in self.numbers]
        self.results = [torch.zeros(self.items if c.kind == ALL_GATHER else part, dtype=torch.float16)
                        for c in task.collectives]  # fmt: skip

    def run_collectives(self, number: int) -> None:
        (task,) = self.tasks.values()
        numbers = self.numbers[number % SLOTS]
        for collective, result in zip(task.collectives, self.results, strict=True):
            if collective.kind == ALL_REDUCE:
                self.all_reduce(numbers)
            elif collective.kind == ALL_GATHER:
                self.all_gather(result, self.own_parts[number % SLOTS])
            else:
                self.reduce_scatter(result, numbers)

    def verify(self, first: int, last: int) -> tuple[dict[str, int], dict[str, bool | None]]:
        """Compare all results of the last step, and make its numbers anew: an all-reduce has changed them."""
        wrong, views = super().verify(first, last)
        counts, slot, (task,) = Counter(wrong), last % SLOTS, self.tasks.values()
        for collective, result in zip(task.collectives, self.results, strict=True):
            for rank, (begin, end) in enumerate(self.parts):
                if collective.kind == ALL_GATHER:
                    found, sources = result[begin:end], [rank]
                elif collective.kind == ALL_REDUCE or rank == self.rank:
                    found = self.numbers[slot][begin:end] if collective.kind == ALL_REDUCE else result
                    sources = [*range(self.rank_count)]
                else:
                    continue
                expected = make_sums(sources, slot, self.rank_count, begin, end)
                counts[f"{self.name}, {collective.kind}"] += ITEM_BYTES * int((found != expected).sum())
            result.zero_()
        self.numbers[slot].copy_(make_sums([self.rank], slot, self.rank_count, 0, self.items))
        self.faults_before = recorder.count_faults()  # those of the verification do not count
        return {name: count for name, count in counts.items() if count}, views
