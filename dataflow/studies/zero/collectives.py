# SPDX-License-Identifier: Apache-2.0
"""Run the collectives of a step on numbers that every rank can compute, and verify every result."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from dataflow.studies.zero import ALL_GATHER, ALL_REDUCE, NUMBER_BYTES, REDUCE_SCATTER
from dataflow.study import Part

MAX_SUM = 2047  # float16 holds whole numbers up to this one exactly, so the order of additions does not matter


Collective = Callable[[Tensor, Tensor], Any]  # result, input


def make_numbers(ranks: int, count: int, step: int) -> Tensor:
    """Return float16 numbers of the shape [ranks, count]. They differ between ranks, and from step to step."""
    period = MAX_SUM // ranks
    rank = torch.arange(ranks)[:, None]
    factor = 2 * rank + 3
    first = 17 * step + 5 * rank
    numbers = (torch.arange(period) * factor + first) % period
    halves = numbers.to(torch.float16)
    repeats = count // period + 1
    return halves.repeat(1, repeats)[:, :count]


class Buffers(NamedTuple):
    """The memory of a collective: what this rank gives to it, and what it gets. For an all-reduce, they are one."""

    kind: str
    own: Tensor
    result: Tensor


class Numbers(NamedTuple):
    """What a rank gives to a collective, and the result that it must get."""

    given: Tensor
    expected: Tensor


class CollectivePart(Part):
    """Take part in the collectives of one rank's task. The driver has this part too, and has no collectives."""

    name = "zero"

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.buffers: list[Buffers] = []  # the driver has none
        actors = endpoint.task_flow.actors
        self.ranks = len(actors)
        for task in endpoint.tasks.values():  # of a rank: one
            self.rank = actors.index(endpoint.name)
            kinds, self.count = task.work
            self.buffers = [self.make_buffers(kind) for kind in kinds]

    def make_buffers(self, kind: str) -> Buffers:
        """Return the memory of a collective, with what this rank gives to it in the first step."""
        numbers = self.numbers(kind, 1)
        own = numbers.given.clone()  # collectives may write into it
        if kind == ALL_REDUCE:
            return Buffers(kind, own, result=own)
        result = torch.zeros_like(numbers.expected)
        return Buffers(kind, own, result)

    @cached_property
    def collectives(self) -> Mapping[str, Collective]:
        """Return the collectives of all ranks by name. An all-reduce works in place.

        The ranks make their group when they are asked for the first time, without the driver.
        """
        ranks = range(1, dist.get_world_size())
        group = dist.new_group(ranks, use_local_synchronization=True)
        return {
            ALL_REDUCE: lambda result, _: dist.all_reduce(result, group=group),
            REDUCE_SCATTER: partial(dist.reduce_scatter_single, group=group),
            ALL_GATHER: partial(dist.all_gather_single, group=group),
        }

    def run(self, task: str, number: int) -> None:
        """Run the collectives of a step, one after the other."""
        for kind, own, result in self.buffers:
            collective = self.collectives[kind]
            collective(result, own)

    def verify(self, number: int) -> Mapping[str, int]:
        """Return the wrong bytes of the results of this step by collective, and make the numbers of the next step."""
        wrong = Counter[str]()
        for buffers in self.buffers:
            name = f"{self.endpoint.name}, {buffers.kind}"
            wrong[name] += self.count_wrong_bytes(buffers, number)
            self.prepare(buffers, number + 1)
        return +wrong  # without those of 0 bytes

    def count_wrong_bytes(self, buffers: Buffers, step: int) -> int:
        """Return how many bytes of a result differ from what this rank must get in this step."""
        numbers = self.numbers(buffers.kind, step)
        differs = buffers.result != numbers.expected
        return NUMBER_BYTES * int(differs.sum())

    def prepare(self, buffers: Buffers, step: int) -> None:
        """Delete the result of the step before, and write what this rank gives in this step."""
        numbers = self.numbers(buffers.kind, step)
        buffers.result.zero_()
        buffers.own.copy_(numbers.given)

    def numbers(self, kind: str, step: int) -> Numbers:
        """Return what this rank gives to a collective of a step, and must get from it."""
        numbers = make_numbers(self.ranks, self.count, step)
        parts = numbers.reshape(self.ranks, self.ranks, -1)  # rank, part, number
        if kind == ALL_GATHER:
            return self.gather(parts)
        given = parts[self.rank].flatten()
        sums = parts.sum(0)
        if kind == ALL_REDUCE:
            return Numbers(given, sums.flatten())
        return Numbers(given, sums[self.rank])

    def gather(self, parts: Tensor) -> Numbers:
        """Return the numbers of an all-gather, to which each rank gives the part that it owns."""
        every_rank = range(self.ranks)
        owned = parts[every_rank, every_rank]
        return Numbers(owned[self.rank], owned.flatten())
