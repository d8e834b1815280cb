"""The flow of weights: tensors of known models, cut into messages."""

import pytest

from dataflow.flows.catalogue import build_flow
from dataflow.flows.flow import DRIVER
from dataflow.flows.models import MODELS, model_fields
from dataflow.studies.weights.flow import changes_flow
from dataflow.units import parse_bytes

# Numbers of tensors and bytes of the published checkpoints: model.safetensors.index.json, or the sum over the layers.
KNOWN = {
    "gpt2": (148, 497_759_232),
    "bert-base": (199, 437_928_960),
    "opt-350m": (388, 662_392_832),
    "qwen2.5-0.5b": (290, 988_065_536),
    "qwen2.5-7b": (339, 15_231_233_024),
    "qwen3-30b-a3b": (18_867, 61_064_245_248),
}


def parameter_messages(flow):
    return [message for message in flow.messages if message.is_parameters]


@pytest.mark.parametrize("model", MODELS)
def test_a_model_has_the_tensors_and_bytes_of_its_checkpoint(model):
    fields = model_fields(model, 1)
    assert (len(fields), sum(field.bytes for field in fields)) == KNOWN[model]


def test_buckets_hold_all_tensors_in_order_and_at_most_their_size():
    whole = build_flow("weights", {"model": "gpt2"})
    cut = build_flow("weights", {"model": "gpt2", "bucket_size": parse_bytes("50MiB")})
    messages = parameter_messages(cut)
    assert [name for message in messages for name in message.names] == parameter_messages(whole)[0].names
    assert len(messages) > 5
    for message in messages:
        assert message.bytes <= 50 * 2**20 or len(message.fields) == 1
    assert [task.reads for task in cut.tasks_of("trainer")[:2]] == [(DRIVER,), ("trainer.0",)]
    single = build_flow("weights", {"model": "gpt2", "bucket_size": 1})
    assert len(parameter_messages(single)) == 148


def test_senders_share_the_tensors_and_shards_have_one_reader_each():
    flow = build_flow("weights", {"model": "opt-350m", "senders": 2})
    parts = [message.bytes for message in parameter_messages(flow)]
    assert sum(parts) == KNOWN["opt-350m"][1] and max(parts) < 1.1 * min(parts)
    assert {str(edge) for edge in flow.edges_to_actor("rollout-1")} == {
        "trainer-1 -> rollout-1.0", "trainer-2 -> rollout-1.1"}  # fmt: skip
    sharded = build_flow("weights", {"model": "opt-350m", "senders": 2, "sharded": True})
    assert [str(edge) for edge in sharded.edges if edge.message.is_parameters] == [
        "trainer-1 -> rollout-1", "trainer-2 -> rollout-2"]  # fmt: skip


def test_adapters_have_the_textbook_bytes():
    """opt-350m: rank x (18,432 rows and columns per layer) x 24 layers x 2 bytes."""
    flow = build_flow("weights", {"model": "opt-350m", "lora_rank": 8})
    assert parameter_messages(flow)[0].bytes == 8 * 18_432 * 24 * 2


@pytest.mark.parametrize("share", [0.001, 0.01, 0.33])
def test_changes_have_the_textbook_bytes(share):
    """Each changed bfloat16 needs 2 bytes and an index of 4."""
    flow = build_flow("weights", {"model": "qwen2.5-0.5b", "changed": share})
    items = sum(message.bytes for message in parameter_messages(flow)) / 2
    sent = sum(message.bytes for message in changes_flow(flow).messages)
    assert sent == pytest.approx(6 * items / round(1 / share), rel=0.01)


@pytest.mark.parametrize(
    ("sizes", "error"),
    [
        ({"model": "gpt3"}, "unknown --model gpt3"),
        ({"senders": 2, "receivers": 3, "sharded": True}, "the same number of both"),
        ({"model": "1GiB", "senders": 2}, "give fewer senders"),
        ({"model": "qwen3-30b-a3b", "bucket_size": 1}, "give a larger one"),
        ({"model": "1GiB", "lora_rank": 4}, "no matrices"),
        ({"batch_size": 4}, "--batch-size is a size of"),
    ],
)
def test_sizes_that_do_not_fit_are_rejected(sizes, error):
    with pytest.raises(ValueError, match=error):
        build_flow("weights", sizes)
