"""Run the collectives of a step on numbers that every rank can compute, and verify every result."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from dataflow.studies import Collector, Part
from dataflow.studies.zero import ALL_GATHER, ALL_REDUCE, NUMBER_BYTES, REDUCE_SCATTER

MAX_SUM = 2047  # float16 holds whole numbers up to this one exactly, so the order of additions does not matter


def make_numbers(ranks: int, count: int, step: int) -> torch.Tensor:
    """Return float16 numbers of the shape [ranks, count]. They differ between ranks, and from step to step."""
    period, rank = MAX_SUM // ranks, torch.arange(ranks)[:, None]
    numbers = (torch.arange(period) * (2 * rank + 3) + 17 * step + 5 * rank) % period
    return numbers.to(torch.float16).repeat(1, count // period + 1)[:, :count]


def make_collectives() -> dict[str, Callable[[torch.Tensor, torch.Tensor], Any]]:
    """Return the collectives of torch.distributed, which get the result and the input. An all-reduce works in place."""
    group = dist.new_group(range(1, dist.get_world_size()), use_local_synchronization=True)  # of the actors
    return {
        ALL_REDUCE: lambda result, _: dist.all_reduce(result, group=group),
        REDUCE_SCATTER: partial(dist.reduce_scatter_single, group=group),
        ALL_GATHER: partial(dist.all_gather_single, group=group),
    }


class CollectivePart(Part):
    name = "zero"
    collectives: Mapping[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {}

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.results: list[tuple[str, torch.Tensor]] = []  # of each collective; the driver has none
        for task in endpoint.tasks.values():  # of a rank: one
            actors = endpoint.task_flow.actors
            self.rank, self.ranks, (kinds, self.count) = actors.index(endpoint.name), len(actors), task.work
            numbers = make_numbers(self.ranks, self.count, 1)[self.rank].clone()
            self.inputs = dict.fromkeys((ALL_REDUCE, REDUCE_SCATTER), numbers)
            self.inputs[ALL_GATHER] = numbers.chunk(self.ranks)[self.rank].clone()
            for kind in kinds:
                result = numbers if kind == ALL_REDUCE else torch.zeros_like(self.expected(kind, 1))
                self.results.append((kind, result))

    def run(self, task: str, number: int) -> None:
        self.collectives = self.collectives or make_collectives()  # in the first iteration
        for kind, result in self.results:
            self.collectives[kind](result, self.inputs[kind])

    def end_group(self, number: int) -> Mapping[str, int]:
        """Return the wrong bytes of the results of this step by collective, and make the numbers of the next step."""
        wrong = Counter[str]()
        for kind, result in self.results:
            differs = result != self.expected(kind, number)
            wrong[f"{self.endpoint.name}, {kind}"] += NUMBER_BYTES * int(differs.sum())
            result.zero_()
        if self.results:
            self.inputs[REDUCE_SCATTER].copy_(make_numbers(self.ranks, self.count, number + 1)[self.rank])
            self.inputs[ALL_GATHER].copy_(self.inputs[REDUCE_SCATTER].chunk(self.ranks)[self.rank])
        return +wrong

    def expected(self, kind: str, step: int) -> torch.Tensor:
        """Return the result that a collective must have on this rank."""
        numbers = make_numbers(self.ranks, self.count, step)
        if kind == ALL_GATHER:
            return torch.cat([numbers[rank].chunk(self.ranks)[rank] for rank in range(self.ranks)])
        sums = numbers.sum(0)
        return sums if kind == ALL_REDUCE else sums.chunk(self.ranks)[self.rank]


class CollectiveCollector(Collector):
    def add(self, values: Mapping[str, Mapping[str, int]], is_timed: bool) -> Mapping[str, int]:
        return {name: count for wrong in values.values() for name, count in wrong.items()}
