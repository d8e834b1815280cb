"""Run the collectives of a step on numbers that every rank can compute, and verify every result."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import torch
import torch.distributed as dist

from dataflow.studies.zero import ALL_GATHER, ALL_REDUCE, NUMBER_BYTES, REDUCE_SCATTER
from dataflow.study import Part

MAX_SUM = 2047  # float16 holds whole numbers up to this one exactly, so the order of additions does not matter


def make_numbers(ranks: int, count: int, step: int) -> torch.Tensor:
    """Return float16 numbers of the shape [ranks, count]. They differ between ranks, and from step to step."""
    period, rank = MAX_SUM // ranks, torch.arange(ranks)[:, None]
    numbers = (torch.arange(period) * (2 * rank + 3) + 17 * step + 5 * rank) % period
    return numbers.to(torch.float16).repeat(1, count // period + 1)[:, :count]


class CollectivePart(Part):
    name = "zero"

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.buffers: list[
            tuple[str, torch.Tensor, torch.Tensor]
        ] = []  # collective, input, result; the driver: none
        for task in endpoint.tasks.values():  # of a rank: one
            actors = endpoint.task_flow.actors
            self.rank, self.ranks, (kinds, self.count) = (
                actors.index(endpoint.name),
                len(actors),
                task.work,
            )
            for kind in kinds:
                own, expected = (
                    numbers.clone() for numbers in self.numbers(kind, 1)
                )  # collectives may write into own
                self.buffers.append((kind, own, own if kind == ALL_REDUCE else expected.zero_()))

    @cached_property
    def collectives(self) -> Mapping[str, Callable[[torch.Tensor, torch.Tensor], Any]]:
        """Return the collectives of all ranks, which get the result and the input. An all-reduce works in place."""
        group = dist.new_group(
            range(1, dist.get_world_size()), use_local_synchronization=True
        )  # without the driver
        return {
            ALL_REDUCE: lambda result, _: dist.all_reduce(result, group=group),
            REDUCE_SCATTER: partial(dist.reduce_scatter_single, group=group),
            ALL_GATHER: partial(dist.all_gather_single, group=group),
        }

    def run(self, task: str, number: int) -> None:
        for kind, own, result in self.buffers:
            self.collectives[kind](result, own)

    def verify(self, number: int) -> Mapping[str, int]:
        """Return the wrong bytes of the results of this step by collective, and make the numbers of the next step."""
        wrong = Counter[str]()
        for kind, own, result in self.buffers:
            differs = result != self.numbers(kind, number)[1]
            wrong[f"{self.endpoint.name}, {kind}"] += NUMBER_BYTES * int(differs.sum())
            result.zero_()
            own.copy_(self.numbers(kind, number + 1)[0])
        return +wrong

    def numbers(self, kind: str, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what this rank gives to a collective, and the result that it must get."""
        numbers = make_numbers(self.ranks, self.count, step).reshape(
            self.ranks, self.ranks, -1
        )  # rank, part, number
        if kind == ALL_GATHER:
            return numbers[self.rank, self.rank], numbers[
                range(self.ranks), range(self.ranks)
            ].flatten()
        own, sums = numbers[self.rank].flatten(), numbers.sum(0)
        return own, sums.flatten() if kind == ALL_REDUCE else sums[self.rank]
