"""The flows by name: their edges and bytes at given sizes, and which sizes are refused."""

from itertools import pairwise

import pytest

from common.flow.catalogue import FLOWS, build_flow, chain, online_dpo, ppo, scatter_gather, sizes_of
from common.flow.flow import DRIVER, Edge
from common.flow.message import flat

MIB = 2**20


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_has_its_own_sizes_unless_told(name):
    """As the flags give them: every size by its name, None where it was left out."""
    every = {size for flow in FLOWS for size in sizes_of(flow)}
    assert build_flow(name, dict.fromkeys(every)) == build_flow(name, {}) == FLOWS[name]()
    for size, usual in sizes_of(name).items():
        if isinstance(usual, int) and not isinstance(usual, bool) and size != "seq_length":  # which vllm alone pads to
            assert build_flow(name, {size: usual + 1}) == FLOWS[name](**{size: usual + 1}) != FLOWS[name]()


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("online-dpo", {"payload_bytes": 8}, "--payload-bytes is for round-trip, chain, scatter-gather: leave it out"),
        ("round-trip", {"roles": 2}, "--roles is for chain, scatter-gather: .* give round-trip --payload-bytes$"),
        ("chain", {"max_new_tokens": 0}, "--max-new-tokens is for online-dpo: .*chain --payload-bytes, --roles"),
        ("ppo", {"batch_size": 2}, "--batch-size is for online-dpo: .* ppo --rows, --prompt-len, --response-len"),
        ("online-dpo", {"batch_size": 0}, "--batch-size is 0"),
        ("chain", {"payload_bytes": 0}, "a message of 0 bytes"),
    ],
)
def test_sizes_that_are_anothers_or_make_no_flow_are_refused(name, given, reason):
    with pytest.raises(ValueError, match=reason):
        build_flow(name, given)


def test_online_dpo_is_the_demos():
    assert online_dpo().edges == (
        Edge(DRIVER, "policy", flat(32 * MIB)),
        Edge("policy", "reference", flat(96 * MIB)),
        Edge("policy", "reward", flat(96 * MIB)),
        Edge("reference", "reward", flat(64 * MIB)),
        Edge("reward", DRIVER, flat(160 * MIB)),
    )
    assert online_dpo().bytes_per_trip == 448 * MIB


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_chain_goes_through_every_role_and_back_and_a_scatter_gather_asks_them_all(count):
    roles = [f"role-{index}" for index in range(1, count + 1)]
    through = list(pairwise([DRIVER, *roles, DRIVER]))
    around = [*((DRIVER, role) for role in roles), *((role, DRIVER) for role in roles)]
    for made, ends in ((chain(13, count), through), (scatter_gather(13, count), around)):
        assert made.edges == tuple(Edge(source, reader, flat(13)) for source, reader in ends)


def test_flows_of_another_shape_have_another_name():
    """Or charts would show a chain of two beside a chain of four."""
    shapes = [make(8, count) for make in (chain, scatter_gather) for count in (1, 2, 4)]
    assert len({made.name for made in shapes}) == len(shapes)


@pytest.mark.parametrize(("rows", "prompt", "response"), [(1, 1, 1), (3, 5, 7), (128, 512, 512)])
def test_ppo_has_the_bytes_of_chatlearns_messages(rows, prompt, response):
    """B rows of p prompt and a response tokens, L = p + a; by alibaba/ChatLearn at 85ee7dfe."""
    made, length = ppo(rows, prompt, response), prompt + response
    tokens, prompts, responses = rows * length, rows * prompt, rows * response
    prompt_text, response_text = 4 * prompts, 4 * responses  # four letters a token
    bytes_of = {edge.source: edge.bytes for edge in made.edges}
    assert bytes_of == {
        DRIVER: 8 * prompts,
        "policy": 13 * tokens - 4 * rows + 8 * prompts + prompt_text + response_text,
        "reference": 4 * (tokens - rows),
        "value": 4 * tokens,
        # ChatLearn's own rm_rewards is a list of floats, 9 bytes each when pickled; here a list of lists of one float.
        "reward": 17 * tokens + 12 * responses + 8 * prompts + 8 * rows + prompt_text,
    }
    assert [str(edge) for edge in made.edges] == [
        "driver -> policy", "policy -> reference", "policy -> value",
        "policy -> reward", "reference -> reward", "value -> reward",
        "value -> driver", "reward -> driver",
    ]  # fmt: skip
