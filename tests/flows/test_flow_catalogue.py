"""Test the flows of the catalogue: their edges and bytes, their sizes, scaling, and ChatLearn's messages."""

import pytest

from dataflow.flows.catalogue import build_flow, online_dpo
from dataflow.flows.chatlearn_messages import Batch, draw_lengths
from dataflow.flows.flow import DRIVER
from dataflow.flows.message import ACKNOWLEDGEMENT

MIB = 2**20


@pytest.mark.parametrize(
    ("name", "sizes", "reason"),
    [
        ("chain", {"max_new_tokens": 0}, "--max-new-tokens is a size of online-dpo: .*chain has --message-bytes"),
        ("online-dpo", {"prompt_len": 4}, "--prompt-len is a size of ppo, .*, online-dpo --message fields"),
        ("ppo", {"iteration_bytes": 2**20}, "--iteration-bytes changes flat messages.*--batch-size"),
        ("online-dpo", {"iteration_bytes": 39}, "give 40 or more"),
        ("round-trip", {"message_bytes": 512, "fields": 65}, r"--fields 65: .* 512 bytes"),
        ("online-dpo", {"batch_size": 3, "prompt_seq_len": 5, "num_samples": 1}, "odd"),
        ("ppo", {"padding": "vllm", "seq_length": 20}, "a sample has 1024 tokens, more than --seq-length 20"),
        ("offline-dpo", {}, "unknown flow offline-dpo: did you mean online-dpo?"),
    ],
)
def test_sizes_that_a_flow_cannot_have_are_rejected(name, sizes, reason):
    with pytest.raises(ValueError, match=reason):
        build_flow(name, sizes)


def test_online_dpo_has_the_bytes_of_the_demo():
    edges = [(str(edge), edge.bytes // MIB) for edge in online_dpo().edges]
    assert edges == [("driver -> policy", 32), ("policy -> reference", 96), ("policy -> reward", 96),
                     ("reference -> reward", 64), ("reward -> driver", 160)]  # fmt: skip


@pytest.mark.parametrize("name", ["online-dpo", "scatter-gather", "rollout-1, rollout-2 -> trainer: 12MB"])
def test_scaled_messages_keep_their_share_and_cut_messages_their_bytes_and_acknowledgements_do_not_change(name):
    original = build_flow(name, {})
    acknowledged = sum(edge.bytes for edge in original.edges if edge.message == ACKNOWLEDGEMENT)
    for count in (1024, 2**20 + 1, 10**9):
        flow, cut = (
            build_flow(name, {"iteration_bytes": count}),
            build_flow(name, {"iteration_bytes": count, "fields": 3}, "packed"),
        )
        assert flow.bytes_per_iteration == pytest.approx(count, abs=4 * len(flow.edges))  # 4 bytes per message
        for before, after, parts in zip(original.edges, flow.edges, cut.edges, strict=True):
            if before.message == ACKNOWLEDGEMENT:
                assert before == after == parts
                continue
            share = before.bytes / (original.bytes_per_iteration - acknowledged)
            assert after.bytes == parts.bytes == pytest.approx(share * (count - acknowledged), abs=4)
            assert (str(after), after.message.fields[0].dtype) == (str(before), "int64")
            assert (len(parts.message.fields), parts.message.is_flat) == (3, False)


@pytest.mark.parametrize(
    ("padding", "size", "prompt", "response"),
    [("megatron", 128, "lognormal:60:0.5:128", "uniform:1:64"), ("vllm", 16, 100, "uniform:2:90")],
)
@pytest.mark.parametrize("name", ["online-dpo", "grpo", "grpo-math", "ppo"])
def test_messages_have_the_bytes_of_chatlearns_formulas(name, padding, size, prompt, response):
    sizes = {"batch_size": size, "prompt_len": prompt, "response_len": response, "seq_length": 200, "padding": padding}
    flow, batch = build_flow(name, sizes, "fields"), Batch(**sizes)
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
    compact_bytes, sent_bytes = (sum(m.serialised_bytes for m in flow.messages) for flow in (compact, sent))
    assert compact_bytes == compact.sent_bytes == sent.sent_bytes
    assert sent_bytes == compact_bytes - views.bytes + views.serialised_bytes


def test_lengths_are_the_same_in_every_process_and_inside_their_bounds():
    for spec, smallest, largest, median in (("lognormal:200:0.6:512", 1, 512, 200), ("uniform:10:20", 10, 20, 15)):
        lengths = draw_lengths(spec, 1000, "--response-len")
        assert lengths == draw_lengths(spec, 1000, "--response-len") != draw_lengths(spec, 1000, "--prompt-len")
        assert smallest <= min(lengths) <= max(lengths) <= largest
        assert 0.9 * median < sorted(lengths)[500] < 1.1 * median
