"""Run the collectives of a step on numbers that every rank can compute, and verify every result."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from dataflow.studies import Collector, Part
from dataflow.studies.zero import ALL_GATHER, ALL_REDUCE, NUMBER_BYTES

MAX_SUM = 2047  # float16 holds whole numbers up to this one exactly, so the order of additions does not matter


def make_numbers(ranks: int, count: int, step: int) -> torch.Tensor:
    """Return float16 numbers of the shape [ranks, count]. They differ between ranks, and from step to step."""
    period, rank = MAX_SUM // ranks, torch.arange(ranks)[:, None]
    numbers = (torch.arange(period) * (2 * rank + 3) + 17 * step + 5 * rank) % period
    return numbers.to(torch.float16).repeat(1, count // period + 1)[:, :count]


class CollectivePart(Part):
    """Run the collectives of a rank: the methods all_reduce, reduce_scatter and all_gather of its actor."""

    name = "zero"

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.results: list[tuple[str, torch.Tensor]] = []  # of each collective; the driver has none
        for task in endpoint.tasks.values():  # of a rank: one
            actors = endpoint.task_flow.actors
            self.rank, self.ranks, (kinds, self.count) = actors.index(endpoint.name), len(actors), task.work
            size = self.count // self.ranks
            self.parts = [slice(size * rank, size * (rank + 1)) for rank in range(self.ranks)]
            self.numbers = make_numbers(self.ranks, self.count, 1)[self.rank].clone()
            # No view of the numbers: a reduce-scatter of ray.util.collective writes into its input.
            self.own_part = self.numbers[self.parts[self.rank]].clone()
            for kind in kinds:
                result = self.numbers if kind == ALL_REDUCE else torch.zeros_like(self.expected(kind, 1))
                self.results.append((kind, result))

    def run(self, task: str, number: int) -> None:
        for kind, result in self.results:
            if kind == ALL_REDUCE:
                self.endpoint.all_reduce(result)
            elif kind == ALL_GATHER:
                self.endpoint.all_gather(result, self.own_part)
            else:
                self.endpoint.reduce_scatter(result, self.numbers)

    def end_group(self, number: int) -> Mapping[str, int]:
        """Return the wrong bytes of the results of this step by collective, and make the numbers of the next step."""
        wrong = Counter[str]()
        for kind, result in self.results:
            differs = result != self.expected(kind, number)
            wrong[f"{self.endpoint.name}, {kind}"] += NUMBER_BYTES * int(differs.sum())
            result.zero_()
        if self.results:
            self.numbers.copy_(make_numbers(self.ranks, self.count, number + 1)[self.rank])
            self.own_part.copy_(self.numbers[self.parts[self.rank]])
        return +wrong

    def expected(self, kind: str, step: int) -> torch.Tensor:
        """Return the result that a collective must have on this rank."""
        numbers = make_numbers(self.ranks, self.count, step)
        if kind == ALL_GATHER:
            return torch.cat([numbers[rank, part] for rank, part in enumerate(self.parts)])
        sums = numbers.sum(0)
        return sums if kind == ALL_REDUCE else sums[self.parts[self.rank]]


class CollectiveCollector(Collector):
    def add(self, values: Mapping[str, Mapping[str, int]], is_timed: bool) -> Mapping[str, int]:
        return {name: count for wrong in values.values() for name, count in wrong.items()}
