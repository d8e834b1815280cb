"""Run the collectives of a task on numbers that every rank can compute, and verify every result.

All sums are whole numbers below 2048, which float16 holds exactly, so the order of additions does not matter.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from dataflow.studies import Collector, Part
from dataflow.studies.zero.flow import ALL_GATHER, ALL_REDUCE, ITEM_BYTES

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


class CollectivePart(Part):
    """Run the collectives of a rank: the methods all_reduce, reduce_scatter and all_gather of its actor."""

    name = "zero"

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        actors = endpoint.task_flow.actors
        if not endpoint.tasks:  # the driver
            return
        (self.task,) = endpoint.tasks.values()
        self.rank, self.rank_count = actors.index(endpoint.name), len(actors)
        self.items = self.task.collectives[0].items
        part = self.items // self.rank_count
        self.parts = [(part * rank, part * (rank + 1)) for rank in range(self.rank_count)]
        self.numbers = [make_sums([self.rank], slot, self.rank_count, 0, self.items) for slot in range(SLOTS)]
        # Not the numbers themselves: a reduce-scatter of ray.util.collective writes into its input.
        self.own_parts = [numbers[slice(*self.parts[self.rank])].clone() for numbers in self.numbers]
        self.results = [torch.zeros(self.items if c.kind == ALL_GATHER else part, dtype=torch.float16)
                        for c in self.task.collectives]  # fmt: skip

    def run(self, task: str, number: int) -> None:
        numbers = self.numbers[number % SLOTS]
        for collective, result in zip(self.task.collectives, self.results, strict=True):
            if collective.kind == ALL_REDUCE:
                self.endpoint.all_reduce(numbers)
            elif collective.kind == ALL_GATHER:
                self.endpoint.all_gather(result, self.own_parts[number % SLOTS])
            else:
                self.endpoint.reduce_scatter(result, numbers)

    def end_group(self, number: int) -> Mapping[str, int]:
        """Return the wrong bytes of all results of the last step, and make its numbers anew.

        An all-reduce has changed them.
        """
        wrong = Counter[str]()
        if not self.endpoint.tasks:
            return wrong
        slot = number % SLOTS
        for collective, result in zip(self.task.collectives, self.results, strict=True):
            for rank, (begin, end) in enumerate(self.parts):
                if collective.kind == ALL_GATHER:
                    found, sources = result[begin:end], [rank]
                elif collective.kind == ALL_REDUCE or rank == self.rank:
                    found = self.numbers[slot][begin:end] if collective.kind == ALL_REDUCE else result
                    sources = [*range(self.rank_count)]
                else:
                    continue
                expected = make_sums(sources, slot, self.rank_count, begin, end)
                wrong[f"{self.endpoint.name}, {collective.kind}"] += ITEM_BYTES * int((found != expected).sum())
            result.zero_()
        self.numbers[slot].copy_(make_sums([self.rank], slot, self.rank_count, 0, self.items))
        return +wrong


class CollectiveCollector(Collector):
    def add(self, values: Mapping[str, Mapping[str, int]], is_timed: bool) -> Mapping[str, int]:
        return sum(map(Counter, values.values()), Counter[str]())
