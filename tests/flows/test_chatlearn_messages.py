"""Test the bytes of ChatLearn's messages, and the lengths of their samples."""

import pytest

from dataflow.flows.catalogue import build_flow
from dataflow.flows.chatlearn_messages import draw_lengths, make_batch
from dataflow.flows.flow import DRIVER


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
