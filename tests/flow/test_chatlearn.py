"""ChatLearn's flows and messages: their graphs, their bytes by its formulas, lengths, padding, and views as shipped."""

import pytest

from common.flow.catalogue import build_flow, describe_flows
from common.flow.chatlearn import batch_of
from common.flow.lengths import draw_lengths

CASES = [
    ("megatron", 3, 5, 7),
    ("megatron", 128, "lognormal:60:0.5:128", "uniform:1:64"),
    ("vllm", 16, 100, "uniform:2:90"),
]


@pytest.mark.parametrize(("padding", "rows", "prompt", "response"), CASES, ids=str)
@pytest.mark.parametrize("name", ["online-dpo", "grpo", "grpo-math", "ppo"])
def test_messages_have_the_bytes_of_chatlearns_formulas(name, padding, rows, prompt, response):
    sizes = {"rows": rows, "prompt_len": prompt, "response_len": response, "seq_length": 200, "padding": padding}
    flow = build_flow(name, sizes, "fields")
    batch = batch_of(rows, prompt, response, 200, padding, False)
    prompts, responses = sum(batch.prompts), sum(batch.responses)
    padded = rows * (200 if padding == "vllm" else max(batch.prompts) + max(batch.responses))
    expected = {
        "driver": 8 * prompts,
        "policy": 13 * padded - 4 * rows + 8 * prompts + 4 * (prompts + responses),
        "reference": 4 * (padded - rows),
        "value": 4 * padded,
        # rm_rewards is a list of lists of one float here, where ChatLearn pickles a flat list, nine bytes a float.
        "reward": 17 * padded + (12 if name == "ppo" else 8) * responses + 8 * prompts + 8 * rows + 4 * prompts,
        "reward1": 8 * rows,
    }
    assert {sender: flow.message(sender).bytes for sender in ("driver", *(task.name for task in flow.tasks))} == {
        sender: expected[sender] for sender in ("driver", *(task.name for task in flow.tasks))
    }


@pytest.mark.parametrize(
    ("name", "inputs", "between", "returned"),
    [("online-dpo", 1, 3, 1), ("grpo", 1, 3, 1), ("ppo", 1, 5, 2), ("grpo-math", 2, 4, 2), ("dpo", 1, 0, 1)],
)
def test_graphs_have_chatlearns_edges(name, inputs, between, returned):
    flow = build_flow(name, {}, "fields")
    assert (len(flow.edges_from("driver")), len(flow.edges_to("driver"))) == (inputs, returned)
    assert len(flow.edges) == inputs + between + returned


def test_dpo_sends_pairs_and_gets_them_back_with_two_sums():
    flow = build_flow("dpo", {"rows": 4, "prompt_len": 3, "response_len": 5})
    assert [edge.bytes for edge in flow.edges] == [24 * 4 * 8 + 8 * 4, 24 * 4 * 8 + 16 * 4]


def test_as_shipped_every_row_brings_the_padded_tensor_of_all_rows_along():
    sizes = {"rows": 64, "prompt_len": 512, "response_len": 512}
    compact, shipped = (build_flow("online-dpo", sizes | more, "fields") for more in ({}, {"as_shipped": True}))
    assert [edge.bytes for edge in compact.edges] == [edge.bytes for edge in shipped.edges]
    (views,) = [field for field in shipped.message("reward").fields if field.storage]
    assert (views.name, views.shipped_bytes) == ("action_logprobs", 64 * 64 * 1023 * 4)
    assert compact.shipped_bytes == compact.emitted_bytes == shipped.emitted_bytes
    assert shipped.shipped_bytes == compact.shipped_bytes - views.bytes + views.shipped_bytes
    reward = build_flow("ppo", sizes | {"as_shipped": True}).message("reward")
    assert {field.name: field.shipped_bytes for field in reward.fields if field.storage} == {
        "action_logprobs": 64 * 64 * 1023 * 4, "action_values": 64 * 64 * 1024 * 4,
    }  # fmt: skip


def test_the_two_rewards_of_grpo_math_have_names_of_their_own():
    """Or one of them would be lost where messages are merged."""
    fields = [field.name for edge in build_flow("grpo-math", {}).edges_to("driver") for field in edge.message.fields]
    assert len(set(fields)) == len(fields) and {"rm_rewards", "math_rewards"} <= set(fields)


def test_the_demos_flow_is_flat_without_fields():
    assert build_flow("online-dpo", {}).bare
    with pytest.raises(ValueError, match=r"--rows is for ppo, .*, online-dpo --message fields"):
        build_flow("online-dpo", {"rows": 4})


def test_lengths_are_drawn_alike_everywhere_and_stay_within_their_bounds():
    for spec, shortest, longest in (
        ("lognormal:200:0.6:512", 1, 512),
        ("uniform:10:20", 10, 20),
        ("7", 7, 7),
        (7, 7, 7),
    ):
        drawn = draw_lengths(spec, 1000, "--response-len")
        assert drawn == draw_lengths(spec, 1000, "--response-len")
        assert shortest <= min(drawn) <= max(drawn) <= longest
    drawn = draw_lengths("lognormal:200:0.6:512", 1000, "--response-len")
    assert 180 < sorted(drawn)[500] < 220
    assert drawn != draw_lengths("lognormal:200:0.6:512", 1000, "--prompt-len")


@pytest.mark.parametrize(
    "spec", ["", "0", "-1", "9.5", "lognormal:200:0.6", "lognormal:-1:0.6:9", "uniform:9:3", "gauss:1:2", 0]
)
def test_what_is_no_length_is_refused(spec):
    with pytest.raises(ValueError, match="--prompt-len"):
        draw_lengths(spec, 3, "--prompt-len")


def test_samples_that_do_not_fit_into_vllms_length_are_refused():
    with pytest.raises(ValueError, match="a sample has 24 tokens, more than --seq-length 20: raise it"):
        build_flow("ppo", {"rows": 2, "prompt_len": 12, "response_len": 12, "seq_length": 20, "padding": "vllm"})


def test_the_list_of_flows_has_every_field_of_every_message():
    text = describe_flows()
    for words in ("ppo: RLHF (PPO)", "action_values", "chosen_mask", "online-dpo --message fields", "128 x [512..512]"):
        assert words in text
