# SPDX-License-Identifier: Apache-2.0
"""ColossalAI's detached PPO: who sends to whom, the bytes of its messages, and rounds over transports."""

import pytest

from dataflow.flows.catalogue import build_flow
from dataflow.measure.data_path import expected_stored_bytes
from dataflow.studies.detached_ppo import experience

EDGES = {  # coati/ray/utils.py, get_receivers_per_sender: experience, then weights
    (1, 1): ({("maker-0", "trainer-0")}, {("trainer-0", "maker-0")}),
    (1, 2): ({("maker-0", "trainer-0"), ("maker-0", "trainer-1")}, {("trainer-0", "maker-0")}),
    (2, 1): ({("maker-0", "trainer-0"), ("maker-1", "trainer-0")},
             {("trainer-0", "maker-0"), ("trainer-0", "maker-1")}),
    (2, 3): ({("maker-0", "trainer-0"), ("maker-0", "trainer-2"), ("maker-1", "trainer-1")},
             {("trainer-0", "maker-0"), ("trainer-1", "maker-1")}),
    (3, 2): ({("maker-0", "trainer-0"), ("maker-1", "trainer-1"), ("maker-2", "trainer-0")},
             {("trainer-0", "maker-0"), ("trainer-1", "maker-1"), ("trainer-0", "maker-2")}),
}  # fmt: skip


@pytest.mark.parametrize(("makers", "trainers"), EDGES)
def test_makers_and_trainers_are_paired_as_in_colossalai(makers, trainers):
    flow = build_flow("detached-ppo", {"makers": makers, "ppo_trainers": trainers})
    pairs = [(flow.actor(edge.source), flow.actor(edge.reader), edge) for edge in flow.edges]
    experiences = {
        (a, b) for a, b, edge in pairs if a.startswith("maker") and b.startswith("trainer")
    }
    weights = {(a, b) for a, b, edge in pairs if edge.message.is_parameters}
    assert (experiences, weights) == EDGES[makers, trainers]
    samples = sum(
        len(edge.message.fields[0].lengths) for a, b, edge in pairs if (a, b) in experiences
    )
    assert samples == 8 * makers


@pytest.mark.parametrize(("tokens", "actions", "expected"), [(128, 32, 2_154), (512, 416, 9_450)])
def test_an_experience_has_the_bytes_of_the_formula_and_views_are_pickled_with_the_whole_batch(
    tokens, actions, expected
):
    for items, factor in (("batch", 1), ("clones", 1), ("views", 64)):
        message = experience(64, 64, tokens, actions, items)
        assert message.bytes == 64 * expected
        assert message.serialised_bytes == factor * message.bytes
    dealt = [experience(32, 64, tokens, actions, "views").serialised_bytes for _ in range(2)]
    assert sum(dealt) == 64 * 64 * expected  # two trainers do not change the sum


@pytest.mark.parametrize(
    ("sizes", "error"),
    [
        ({"ppo_trainers": 4, "batch_size": 3}, "as many or more"),
        ({"seq_length": 256}, "contains the prompt"),
    ],
)
def test_sizes_that_do_not_fit_are_rejected(sizes, error):
    with pytest.raises(ValueError, match=error):
        build_flow("detached-ppo", sizes)


def test_views_are_stored_with_their_storage_only_by_pickle(make_plan):
    plans = {name: make_plan("store", "--transport", name, "--flow", "detached-ppo")
             for name in ("refs", "bytes", "replay-buffer")}  # fmt: skip
    sizes = {name: expected_stored_bytes(plan, 100 * 1024) for name, plan in plans.items()}
    assert (
        sizes["refs"] - sizes["bytes"]
        == plans["refs"].sent_flow.message("maker-0").serialised_bytes
    )
    assert (
        sizes["replay-buffer"] == sizes["refs"]
    )  # the buffer holds batches and no views, which are small


ROUNDS = (
    "--flow",
    "detached-ppo",
    "--batch-size",
    "32",
    "--model-scale",
    "0.01",
    "--iterations",
    "4",
    "--warmup",
    "1",
)


@pytest.mark.parametrize(("configuration", "flags"), [
    pytest.param("store by-value", "", marks=pytest.mark.slow),
    pytest.param("store replay-buffer", "", marks=pytest.mark.long),
    pytest.param("torch mapped", "--makers 1 --ppo-trainers 2", marks=pytest.mark.long),
])  # fmt: skip
def test_makers_and_trainers_exchange_experience_and_weights(measure, configuration, flags):
    """A run fails if the store takes in other bytes than expected."""
    measure(configuration, *ROUNDS, *flags.split())
