# SPDX-License-Identifier: Apache-2.0
"""Test the edges of flows, the layout of messages, and the tensors of models."""

from itertools import pairwise

import pytest
from in_process import COLOCATED, FIELDS

from dataflow.endpoints.payload import make_field, number_bytes
from dataflow.flows import message as messages
from dataflow.flows.catalogue import build_flow
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, flat_message

WIDE = Flow(
    "wide", "wide", flat_message(8),
    (Task("left", (DRIVER,), flat_message(16)), Task("right", (DRIVER,), flat_message(24)),
     Task("judge", ("right", DRIVER, "left"), flat_message(32))),
    returns=("judge", "left"),
)  # fmt: skip
KNOWN = {
    "gpt2": (148, 497_759_232),
    "bert-base": (199, 437_928_960),
    "opt-350m": (388, 662_392_832),
    "qwen2.5-0.5b": (290, 988_065_536),
    "qwen2.5-7b": (339, 15_231_233_024),
    "qwen3-30b-a3b": (18_867, 61_064_245_248),
}


def test_edges_are_in_the_order_of_their_readers_and_of_the_arguments():
    assert [str(edge) for edge in WIDE.edges] == [
        "driver -> left", "driver -> right",
        "right -> judge", "driver -> judge", "left -> judge",
        "judge -> driver", "left -> driver",
    ]  # fmt: skip
    assert WIDE.bytes_per_iteration == 8 + 8 + 24 + 8 + 16 + 32 + 16
    assert WIDE.sent_bytes == 8 + 16 + 24 + 32
    assert [str(edge) for edge in COLOCATED.edges_to_actor("one")] == [
        "driver -> policy",
        "reward -> judge",
    ]


@pytest.mark.parametrize(("reads_by_task", "returns", "reason"), [
    ({"b": ["nobody"]}, ["b"], "b reads .*nobody"),
    ({"b": ["a"], "a": [DRIVER]}, ["b"], "b reads .*a.*: give names of tasks before it"),
    ({DRIVER: [DRIVER]}, [DRIVER], "the name driver is taken"),
    ({"a": [DRIVER], "b": [DRIVER]}, ["b"], "the message of a has no reader"),
    ({"b": [DRIVER]}, [], r"returns \[\]"),
])  # fmt: skip
def test_a_flow_that_cannot_run_is_rejected(reads_by_task, returns, reason):
    tasks = tuple(
        Task(name, tuple(reads), ACKNOWLEDGEMENT) for name, reads in reads_by_task.items()
    )
    with pytest.raises(ValueError, match=reason):
        Flow("test", "a test", flat_message(8), tasks, tuple(returns))


def test_a_task_on_an_actor_with_the_name_of_the_driver_is_rejected():
    tasks = (Task("policy", (DRIVER,), ACKNOWLEDGEMENT, actor=DRIVER),)
    with pytest.raises(
        ValueError, match="policy cannot run on an actor named driver: give another"
    ):
        Flow("test", "a test", flat_message(8), tasks, ("policy",))


@pytest.mark.parametrize("arguments", [
    {"dtype": "int65", "shape": (2,)}, {"dtype": "str"}, {"dtype": "int64", "lengths": (2, -1)},
    {"dtype": "int64", "shape": (2, 3), "storage": (2, 2)}, {"dtype": "int64", "shape": (8, 8.5)},
], ids=str)  # fmt: skip
def test_fields_that_are_not_possible_are_rejected(arguments):
    with pytest.raises(ValueError, match=r"^field 'logprobs'.*$"):
        Field("logprobs", **arguments)


def test_the_fields_of_a_packed_message_are_aligned_and_do_not_overlap():
    for span, field in zip(FIELDS.spans, FIELDS.fields, strict=True):
        assert span.start % 8 == 0 and span.stop - span.start == field.bytes
    assert all(0 <= after.start - before.stop < 8 for before, after in pairwise(FIELDS.spans))
    assert FIELDS.packed_bytes == FIELDS.spans[-1].stop
    sizes = {field.name: field.bytes for field in FIELDS.fields}
    assert (sizes["halves"], sizes["list"], sizes["words"], sizes["corner"], sizes["nothing"]) == (
        6,
        28,
        14,
        96,
        0,
    )
    assert FIELDS.bytes == sum(sizes.values()) == sum(FIELDS.tensor_bytes)


def test_a_jagged_message_has_the_values_and_the_offsets_of_each_list():
    message = messages.jagged_message(
        build_flow("a -> b: ids int64 16B, weights 3 x bfloat16 4B", {}).task("a").sends
    )
    assert [(field.name, field.dtype, field.shape) for field in message.fields] == [
        ("ids", "int64", (2,)), ("weights_values", "bfloat16", (6,)), ("weights_offsets", "int64", (4,)),
    ]  # fmt: skip
    (offsets,) = make_field(message.fields[-1], "a", 0)
    assert offsets.tolist() == [0, 2, 4, 6] and number_bytes(message.fields[-1]) == 0


@pytest.mark.parametrize("model", messages.MODELS)
def test_a_model_has_the_tensors_and_bytes_of_its_checkpoint(model):
    fields = messages.model_fields(model, 1)
    assert (len(fields), sum(field.bytes for field in fields)) == KNOWN[model]
