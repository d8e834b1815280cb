"""Test the flows of the catalogue: their edges and bytes, ChatLearn's messages, and sizes, and scaling."""

from itertools import pairwise

import pytest

from dataflow.endpoints.payload import make_field, number_bytes
from dataflow.flows.catalogue import FLOWS, build_flow, chain, flow_sizes, online_dpo, scatter_gather
from dataflow.flows.chatlearn_messages import draw_lengths, make_batch
from dataflow.flows.flow import DRIVER, Edge
from dataflow.flows.message import ACKNOWLEDGEMENT, flat_message, jagged_message

MIB = 2**20
FLAT = ["online-dpo", "chain", "scatter-gather", "round-trip", "rollout-1, rollout-2 -> trainer: 12MB"]


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_has_its_default_sizes_unless_they_are_given(name):
    every_size = {size for flow in FLOWS for size in flow_sizes(flow)}
    assert build_flow(name, dict.fromkeys(every_size)) == build_flow(name, {}) == FLOWS[name]()
    for size, default in flow_sizes(name).items():
        if type(default) is int and size != "seq_length":  # only vllm pads to it
            assert build_flow(name, {size: default + 1}) == FLOWS[name](**{size: default + 1}) != FLOWS[name]()


@pytest.mark.parametrize(
    ("name", "sizes", "reason"),
    [
        ("chain", {"max_new_tokens": 0}, "--max-new-tokens is a size of online-dpo: .*chain has --payload-bytes"),
        ("online-dpo", {"prompt_len": 4}, "--prompt-len is a size of ppo, .*, online-dpo --message fields"),
        ("ppo", {"prompt_len": "uniform:9:3"}, "--prompt-len"),
        ("ppo", {"payload": 2**20}, "--payload changes flat messages.*--batch-size"),
        ("ppo", {"fields": 2**20}, r"--fields 1048576: ppo has a tensor of only"),
        ("online-dpo", {"payload": 39}, "give 40 or more"),
        ("round-trip", {"payload_bytes": 512, "fields": 65}, r"--fields 65: .* 512 bytes"),
        ("online-dpo", {"batch_size": 3, "prompt_seq_len": 5, "num_samples": 1}, "odd"),
        ("ppo", {"padding": "vllm", "seq_length": 20}, "a sample has 1024 tokens, more than --seq-length 20"),
        ("offline-dpo", {}, "unknown flow offline-dpo: did you mean online-dpo?"),
    ],
)
def test_sizes_that_a_flow_cannot_have_are_rejected(name, sizes, reason):
    with pytest.raises(ValueError, match=reason):
        build_flow(name, sizes)


def test_online_dpo_has_the_bytes_of_the_demo():
    assert online_dpo().edges == (
        Edge(DRIVER, "policy", flat_message(32 * MIB)),
        Edge("policy", "reference", flat_message(96 * MIB)),
        Edge("policy", "reward", flat_message(96 * MIB)),
        Edge("reference", "reward", flat_message(64 * MIB)),
        Edge("reward", DRIVER, flat_message(160 * MIB)),
    )


def test_a_chain_passes_every_actor_and_a_scatter_gather_reaches_all_at_once():
    through = [(edge.source, edge.reader) for edge in chain(13, 2).edges]
    assert through == list(pairwise([DRIVER, "actor-1", "actor-2", DRIVER]))
    around = [(edge.source, edge.reader) for edge in scatter_gather(13, 2).edges]
    assert around == [(DRIVER, "actor-1"), (DRIVER, "actor-2"), ("actor-1", DRIVER), ("actor-2", DRIVER)]
    assert chain(13, 2).name != chain(13, 3).name  # otherwise charts show them as the same flow


@pytest.mark.parametrize(
    ("padding", "size", "prompt", "response"),
    [("megatron", 128, "lognormal:60:0.5:128", "uniform:1:64"), ("vllm", 16, 100, "uniform:2:90")],
)
@pytest.mark.parametrize("name", ["online-dpo", "grpo", "grpo-math", "ppo"])
def test_messages_have_the_bytes_of_chatlearns_formulas(name, padding, size, prompt, response):
    sizes = {"batch_size": size, "prompt_len": prompt, "response_len": response, "seq_length": 200, "padding": padding}
    flow, batch = build_flow(name, sizes, "fields"), make_batch(size, prompt, response, 200, padding, False)
    prompts, responses = sum(batch.prompts), sum(batch.responses)
    padded = size * (200 if padding == "vllm" else max(batch.prompts) + max(batch.responses))
    expected = {
        "driver": 8 * prompts,
        "policy": 13 * padded - 4 * size + 8 * prompts + 4 * (prompts + responses),  # four characters per token
        "reference": 4 * (padded - size),
        "value": 4 * padded,
        # rm_rewards is a list of lists of one float here, where ChatLearn pickles a flat list, nine bytes per float.
        "reward": 17 * padded + (12 if name == "ppo" else 8) * responses + 8 * prompts + 8 * size + 4 * prompts,
        "reward1": 8 * size,
    }
    assert {edge.source: edge.bytes for edge in flow.edges} == {
        sender: expected[sender] for sender in (DRIVER, *(task.name for task in flow.tasks))
    }


def test_views_as_sent_are_serialised_with_their_full_storage():
    sizes = {"batch_size": 64, "prompt_len": 512, "response_len": 512}
    compact, sent = (build_flow("online-dpo", sizes | {"as_sent": as_sent}, "fields") for as_sent in (False, True))
    assert [edge.bytes for edge in compact.edges] == [edge.bytes for edge in sent.edges]
    (views,) = [field for field in sent.message("reward").fields if field.storage]
    assert (views.name, views.serialised_bytes) == ("action_logprobs", 64 * 64 * 1023 * 4)
    assert compact.serialised_bytes == compact.sent_bytes == sent.sent_bytes
    assert sent.serialised_bytes == compact.serialised_bytes - views.bytes + views.serialised_bytes


def test_lengths_are_the_same_in_every_process_and_inside_their_bounds():
    for spec, smallest, largest, median in (("lognormal:200:0.6:512", 1, 512, 200), ("uniform:10:20", 10, 20, 15)):
        lengths = draw_lengths(spec, 1000, "--response-len")
        assert lengths == draw_lengths(spec, 1000, "--response-len") != draw_lengths(spec, 1000, "--prompt-len")
        assert smallest <= min(lengths) <= max(lengths) <= largest
        assert 0.9 * median < sorted(lengths)[500] < 1.1 * median


def test_a_jagged_message_has_the_values_and_the_offsets_of_each_list():
    message = jagged_message(build_flow("a -> b: ids int64 16B, weights 3 x bfloat16 4B", {}).task("a").sends)
    assert [(field.name, field.dtype, field.shape) for field in message.fields] == [
        ("ids", "int64", (2,)), ("weights_values", "bfloat16", (6,)), ("weights_offsets", "int64", (4,)),
    ]  # fmt: skip
    (offsets,) = make_field(message.fields[-1], "a", 0)
    assert offsets.tolist() == [0, 2, 4, 6] and number_bytes(message.fields[-1]) == 0
    flow = build_flow("online-dpo", {}, "jagged")
    assert len(jagged_message(flow.task("reward").sends).tensor_bytes) < 20 + 3 * 128


def test_named_tensors_are_cut_and_lists_are_not():
    text = "a -> b: tokens int64 80B, 2 x float32 8B"
    (message,) = (edge.message for edge in build_flow(text, {"fields": 3}).edges if edge.source == "a")
    assert [(field.name, field.shape, field.lengths) for field in message.fields] == [
        ("tokens_0", (4,), ()), ("tokens_1", (3,), ()), ("tokens_2", (3,), ()), ("tensors", (), (2, 2)),
    ]  # fmt: skip


@pytest.mark.parametrize("name", FLAT)
def test_scaled_messages_keep_their_share_and_cut_messages_their_bytes_and_acknowledgements_do_not_change(name):
    original = build_flow(name, {})
    acknowledged = sum(edge.bytes for edge in original.edges if edge.message == ACKNOWLEDGEMENT)
    for count in (1024, 2**20 + 1, 10**9):
        flow, cut = build_flow(name, {"payload": count}), build_flow(name, {"payload": count, "fields": 3}, "packed")
        assert flow.bytes_per_iteration == pytest.approx(count, abs=4 * len(flow.edges))  # 4 bytes per message
        for before, after, parts in zip(original.edges, flow.edges, cut.edges, strict=True):
            if before.message == ACKNOWLEDGEMENT:
                assert before == after == parts
                continue
            share = before.bytes / (original.bytes_per_iteration - acknowledged)
            assert after.bytes == parts.bytes == pytest.approx(share * (count - acknowledged), abs=4)
            assert (str(after), after.message.fields[0].dtype) == (str(before), "int64")
            assert (len(parts.message.fields), parts.message.is_flat) == (3, False)
