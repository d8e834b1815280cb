# SPDX-License-Identifier: Apache-2.0
"""Test the flows of the catalogue, of the command line and of files, and numbers with units."""

import pytest

from dataflow.flows.catalogue import build_flow, flow_sizes
from dataflow.flows.chatlearn_messages import SampleBatch, draw_lengths
from dataflow.flows.flow import DRIVER
from dataflow.flows.message import ACKNOWLEDGEMENT
from dataflow.plan.command_line import plan_configuration
from dataflow.units import format_bytes, parse_bytes, parse_seconds


def edges(name, **sizes):
    return [(edge.source, edge.reader, edge.bytes) for edge in build_flow(name, sizes).edges]


def test_the_driver_starts_senders_without_a_source_and_actors_that_send_nothing_acknowledge():
    text = "rollout-1, rollout-2 -> trainer: tokens int64 8MB, logprobs float32 3MB, 250 x bfloat16 4kB"
    assert edges(text) == [
        ("driver", "rollout-1", 8), ("driver", "rollout-2", 8), ("rollout-1", "trainer", 12_000_000),
        ("rollout-2", "trainer", 12_000_000), ("trainer", "driver", 8),
    ]  # fmt: skip
    tokens, logprobs, tensors = build_flow(text, {}).task("rollout-1").sends.fields
    assert (tokens.name, tokens.dtype, tokens.shape) == ("tokens", "int64", (1_000_000,))
    assert (logprobs.name, logprobs.dtype, logprobs.shape) == ("logprobs", "float32", (750_000,))
    assert (tensors.name, tensors.dtype, tensors.lengths) == ("tensors", "bfloat16", (2000,) * 250)


@pytest.mark.parametrize(("name", "sizes", "reason"), [
    ("chain", {"max_new_tokens": 0}, "--max-new-tokens is a size of online-dpo: .*chain has --message-bytes"),
    ("online-dpo", {"prompt_len": 4}, "--prompt-len is a size of ppo, .*, online-dpo --message fields"),
    ("ppo", {"iteration_bytes": 2**20}, "--iteration-bytes changes flat messages.*--batch-size"),
    ("online-dpo", {"iteration_bytes": 39}, "give 40 or more"),
    ("round-trip", {"message_bytes": 512, "fields": 65}, r"--fields 65: .* 512 bytes"),
    ("online-dpo", {"batch_size": 3, "prompt_seq_len": 5, "num_samples": 1}, "odd"),
    ("ppo", {"padding": "vllm", "seq_length": 20}, "a sample has 1024 tokens, more than --seq-length 20"),
    ("offline-dpo", {}, "unknown flow offline-dpo: did you mean online-dpo?"),
    ("a -> b", {}, "write it as"),
    ("a -> a: 1MB", {}, "to itself"),
    ("a -> b: 1MB; b -> a: 1MB", {}, "is a cycle, .*--flow weights, or beside this flow with --beside"),
    ("a -> b: 1MB; a -> c: 2MB", {}, "a sends two different messages"),
    ("query -> b: 1MB", {}, "the name query is reserved: use another one"),
    ("a -> b: x int3 4MB", {}, "give name, dtype"),
    ("a -> b: 0 x float32 4KB", {}, "at least 1"),
    ("a -> b: 300000000 x bfloat16 4MB", {}, "has more than 100000 tensors: give fewer and larger ones"),
])  # fmt: skip
def test_flows_and_sizes_that_are_not_possible_are_rejected_in_one_line(name, sizes, reason):
    with pytest.raises(ValueError, match=reason) as error:
        build_flow(name, sizes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["online-dpo", "scatter-gather", "rollout-1, rollout-2 -> trainer: 12MB"]
)
def test_scaled_messages_keep_their_share_and_cut_messages_their_bytes_and_acknowledgements_do_not_change(
    name,
):
    original = build_flow(name, {})
    acknowledged = sum(edge.bytes for edge in original.edges if edge.message == ACKNOWLEDGEMENT)
    for count in (1024, 2**20 + 1, 10**9):
        flow = build_flow(name, {"iteration_bytes": count})
        cut = build_flow(name, {"iteration_bytes": count, "fields": 3}, "packed")
        assert flow.bytes_per_iteration == pytest.approx(
            count, abs=4 * len(flow.edges)
        )  # 4 bytes per message
        for before, after, parts in zip(original.edges, flow.edges, cut.edges, strict=True):
            if before.message == ACKNOWLEDGEMENT:
                assert before == after == parts
                continue
            share = before.bytes / (original.bytes_per_iteration - acknowledged)
            assert (
                after.bytes == parts.bytes == pytest.approx(share * (count - acknowledged), abs=4)
            )
            assert (str(after), after.message.fields[0].dtype) == (str(before), "int64")
            assert (len(parts.message.fields), parts.message.is_flat) == (3, False)


@pytest.mark.parametrize(
    ("padding", "size", "prompt", "response"),
    [("megatron", 128, "lognormal:60:0.5:128", "uniform:1:64"), ("vllm", 16, 100, "uniform:2:90")],
)
@pytest.mark.parametrize("name", ["online-dpo", "grpo", "grpo-math", "ppo"])
def test_messages_have_the_bytes_of_chatlearns_formulas(name, padding, size, prompt, response):
    sizes = {
        "batch_size": size,
        "prompt_len": prompt,
        "response_len": response,
        "seq_length": 200,
        "padding": padding,
    }
    flow, batch = build_flow(name, sizes, "fields"), SampleBatch(**sizes)
    prompts, responses = (sum(batch.lengths[name]) for name in ("prompts", "responses"))
    padded = size * (
        200 if padding == "vllm" else sum(max(batch.lengths[n]) for n in ("prompts", "responses"))
    )
    expected = {
        "driver": 8 * prompts,
        "policy": 13 * padded
        - 4 * size
        + 8 * prompts
        + 4 * (prompts + responses),  # four characters per token
        "reference": 4 * (padded - size),
        "value": 4 * padded,
        # rm_rewards is a list of lists of one float here, where ChatLearn pickles a flat list, nine bytes per float.
        "reward": 17 * padded
        + (12 if name == "ppo" else 8) * responses
        + 8 * prompts
        + 8 * size
        + 4 * prompts,
        "reward1": 8 * size,
    }
    assert {edge.source: edge.bytes for edge in flow.edges} == {
        sender: expected[sender] for sender in (DRIVER, *(task.name for task in flow.tasks))
    }


def test_views_as_sent_are_serialised_with_their_full_storage():
    sizes = {"batch_size": 64, "prompt_len": 512, "response_len": 512}
    compact, sent = (
        build_flow("online-dpo", sizes | {"as_sent": as_sent}, "fields")
        for as_sent in (False, True)
    )
    assert [edge.bytes for edge in compact.edges] == [edge.bytes for edge in sent.edges]
    (views,) = [field for field in sent.message("reward").fields if field.storage]
    assert (views.name, views.serialised_bytes) == ("action_logprobs", 64 * 64 * 1023 * 4)
    compact_bytes, sent_bytes = (
        sum(m.serialised_bytes for m in flow.messages) for flow in (compact, sent)
    )
    assert compact_bytes == compact.sent_bytes == sent.sent_bytes
    assert sent_bytes == compact_bytes - views.bytes + views.serialised_bytes


def test_lengths_are_the_same_in_every_process_and_inside_their_bounds():
    for spec, smallest, largest, median in (
        ("lognormal:200:0.6:512", 1, 512, 200),
        ("uniform:10:20", 10, 20, 15),
    ):
        lengths = draw_lengths(spec, 1000, "--response-len")
        assert (
            lengths
            == draw_lengths(spec, 1000, "--response-len")
            != draw_lengths(spec, 1000, "--prompt-len")
        )
        assert smallest <= min(lengths) <= max(lengths) <= largest
        assert 0.9 * median < sorted(lengths)[500] < 1.1 * median


def test_bytes_and_seconds_are_read_with_or_without_a_unit():
    texts = ("12", "8B", "12MB", "12MiB", "1.5 kB", "1.1MB")
    assert [parse_bytes(text) for text in texts] == [12, 8, 12 * 10**6, 12 * 2**20, 1500, 1_100_000]
    assert [parse_seconds(text) for text in ("10", "10s", "500ms", "2min", "1.5h")] == [
        10,
        10,
        0.5,
        120,
        5400,
    ]
    formatted = [format_bytes(count) for count in (8, 1000, 24_000_024, 448 << 20)]
    assert formatted == ["8 B", "1,000 B", "22.89 MiB", "448 MiB"]
    for text in ("", "many", "-1", "1e3", "12XB", "nan", "MB", "9" * 19):
        for parse in (parse_bytes, parse_seconds):
            with pytest.raises(ValueError, match="is not a number with"):
                parse(text)
    with pytest.raises(ValueError, match="not a whole number"):
        parse_bytes("0.3B")


FLOW_FILE = """
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import Field, Message

def make(name="policy", actor="", rows=8):
    message = Message((Field("tokens", "int64", (rows,)),))
    return Flow("mine", "mine", message, (Task(name, (DRIVER,), message, actor),), returns=(name,))

flow = make()
def outside(): return make("good", "../../evil")
def integer(): return make(5)
def reserved(): return make("proxy")
def text(): return "a\\nb"
def object_default(n=flow): return make()
def base(): raise BaseException("two\\nlines")
def fine(n=1, m=None, x=0.5, t="a"): return make("policy-1.forward", "policy-1", rows=n)
"""


@pytest.fixture
def flow_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FLOW_FILE)
    return path


@pytest.mark.parametrize(("function", "reason"), [
    ("other", r"KeyError: 'other': give FILE\.py:FUNCTION"),
    ("flow", r"is of type Flow: give FILE\.py:FUNCTION"),
    ("outside", r"line 7: ValueError: '\.\./\.\./evil' is not a name: use letters, digits, dashes"),
    ("integer", "line 7: ValueError: 5 is not a name"),
    ("reserved", "the name proxy is reserved: use another one"),
    ("text", "returned a str: it must return"),
    ("object_default", "give its parameter n a number or a text as default"),
    ("base", "line 15: BaseException: two lines"),
])  # fmt: skip
def test_a_function_that_makes_no_flow_is_rejected_in_one_line(flow_file, function, reason):
    with pytest.raises(ValueError, match=reason) as error:
        build_flow(f"{flow_file}:{function}", {})
    assert "\n" not in str(error.value)


def test_a_function_in_a_file_builds_a_flow_from_its_own_sizes(flow_file):
    name = f"{flow_file}:fine"
    assert flow_sizes(name) == {"n": 1, "m": None, "x": 0.5, "t": "a"}
    assert edges(name, n=2) == [
        ("driver", "policy-1.forward", 16),
        ("policy-1.forward", "driver", 16),
    ]


@pytest.mark.parametrize(
    ("name", "count"), [("ring", 4), ("all-to-all", 12), ("fan-in", 3), ("fan-out", 3)]
)
def test_patterns_send_all_messages_when_the_driver_begins(name, count):
    flow = build_flow(name, {"message_bytes": 24, "actors": 4})
    between = [edge for edge in flow.edges if DRIVER not in (edge.source, edge.reader)]
    assert ([edge.bytes for edge in between], len(flow.actors)) == ([24] * count, 4)
    assert all(task.reads == (DRIVER,) for task in flow.tasks if task.sends != ACKNOWLEDGEMENT)
    pairs = {(flow.actor(edge.source), flow.actor(edge.reader)) for edge in between}
    assert len(pairs) == count
    with pytest.raises(ValueError, match=f"--actors 1: {name} has at least 2"):
        build_flow(name, {"actors": 1})


@pytest.mark.study("weights")
def test_what_the_error_of_a_cycle_advises_can_be_planned():
    beside = {"flow": "rollout -> trainer: 8MB", "beside": "trainer -> rollout: 1MB"}
    for given in ({"flow": "weights", "model": "64MiB"}, beside):
        ((_, skipped),) = plan_configuration("torch memcpy", given)
        assert skipped is None
