"""Verify ZeRO's formulas, and that wrong results of collectives are found."""

import pytest
from conftest import ROOT

from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.flows.catalogue import build_flow
from dataflow.flows.flow import collective_bytes
from dataflow.plan.options import Options
from dataflow.plan.plan import Plan
from dataflow.studies.zero.collectives import CollectiveActor, make_sums


def state_bytes(parameters: float, ranks: int, stage: int) -> float:
    """Return the bytes of parameters, gradients and states of Adam per rank with mixed precision; stage 0: no ZeRO."""
    shards = [1 if stage < first else ranks for first in (3, 2, 1)]
    return sum(size * parameters / shard for size, shard in zip((2, 2, 12), shards, strict=True))


def test_memory_and_bytes_are_those_of_the_paper():
    memory = [f"{state_bytes(7.5e9, 64, stage) / 1e9:.1f} GB" for stage in range(4)]
    assert memory == ["120.0 GB", "31.4 GB", "16.6 GB", "1.9 GB"]
    assert all(f"| {text} |" in (ROOT / "docs" / "zero.md").read_text() for text in memory)
    units = [collective_bytes(build_flow("zero", {"model": "8MB", "ranks": 4, "stage": stage})) for stage in (1, 2, 3)]
    assert units == pytest.approx([bytes_per_rank * 2 * 1_000_000 * 3 / 4 for bytes_per_rank in (2, 2, 3)])


class OneRank(CollectiveActor):
    """A rank that is alone, so that sums and parts are its own numbers."""

    def all_reduce(self, numbers):
        pass

    def reduce_scatter(self, result, numbers):
        result.copy_(numbers)

    def all_gather(self, result, part):
        result.copy_(part)


@pytest.mark.parametrize(("stage", "names"), [(1, {"all-reduce"}), (3, {"all-gather", "reduce-scatter"})])
def test_every_wrong_number_is_counted(stage, names):
    flow = build_flow("zero", {"model": "8KB", "ranks": 2, "stage": stage})
    flow = type(flow)(flow.name, flow.title, flow.query, flow.tasks[:1], flow.returns[:1])
    transport = TRANSPORTS["torch collectives"]
    actor = OneRank(Plan(transport, Options(transport="collectives"), flow), "rank-1")
    actor.run_collectives(1)
    assert actor.verify(1, 1)[0] == {"driver -> rank-1": 8}  # nobody has sent the driver's message
    actor.run_collectives(2)
    for tensor in (*actor.results, actor.numbers[2]):
        tensor[3] += 1
    wrong = actor.verify(2, 2)[0]
    assert {name.removeprefix("rank-1, ") for name in wrong} == {"driver -> rank-1", *names}
    assert wrong[f"rank-1, {min(names)}"] == (2 if stage == 1 else 4)


def test_numbers_of_ranks_and_steps_differ_and_sums_are_exact():
    numbers = [make_sums([rank], slot, 4, 0, 4096) for rank in range(4) for slot in range(3)]
    assert max(int(tensor.max()) for tensor in numbers) * 4 < 2048
    pairs = [(a, b) for index, a in enumerate(numbers) for b in numbers[:index]]
    assert all((a != b).float().mean() > 0.9 for a, b in pairs)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_part_of_a_sum_at_another_place_is_wrong(ranks):
    part = 2**16
    first, second = (make_sums(range(ranks), 0, ranks, begin, begin + part) for begin in (0, part))
    assert (first != second).float().mean() > 0.9
