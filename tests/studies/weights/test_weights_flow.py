"""The flow of weights: the tensors of a model, cut into messages."""

import pytest

from dataflow.flows.catalogue import build_flow
from dataflow.flows.flow import DRIVER
from dataflow.studies.weights.flow import changes_flow


def weights(model, **sizes):
    """Return a flow of weights, and its messages of weights."""
    flow = build_flow("weights", {"model": model, **sizes})
    return flow, [message for message in flow.messages if message.is_parameters]


def test_buckets_hold_all_tensors_in_order_and_at_most_their_size():
    _, (whole,) = weights("gpt2")
    cut, messages = weights("gpt2", bucket_size=50 * 2**20)
    assert [name for message in messages for name in message.names] == whole.names
    assert len(messages) > 5
    assert all(message.bytes <= 50 * 2**20 or len(message.fields) == 1 for message in messages)
    assert [task.reads for task in cut.tasks_of("trainer")[:2]] == [(DRIVER,), ("trainer.0",)]
    _, single = weights("gpt2", bucket_size=1)
    assert len(single) == len(whole.fields) == 148
    assert cut.slots(1) == 2  # the versions that alternate


def test_senders_share_the_tensors_and_shards_have_one_reader_each():
    flow, messages = weights("opt-350m", senders=2)
    parts = [message.bytes for message in messages]
    assert sum(parts) == 662_392_832 and max(parts) < 1.1 * min(parts)
    assert {str(edge) for edge in flow.edges_to_actor("rollout-1")} == {
        "trainer-1 -> rollout-1.0", "trainer-2 -> rollout-1.1"}  # fmt: skip
    sharded, _ = weights("opt-350m", senders=2, sharded=True)
    assert [str(edge) for edge in sharded.edges if edge.message.is_parameters] == [
        "trainer-1 -> rollout-1", "trainer-2 -> rollout-2"]  # fmt: skip


def test_adapters_have_the_textbook_bytes():
    """opt-350m: rank x (18,432 rows and columns per layer) x 24 layers x 2 bytes."""
    _, (message,) = weights("opt-350m", lora_rank=8)
    assert message.bytes == 8 * 18_432 * 24 * 2


@pytest.mark.parametrize("share", [0.001, 0.33])
def test_changes_have_the_textbook_bytes(share):
    """Each changed bfloat16 needs 2 bytes and an index of 4."""
    flow, messages = weights("qwen2.5-0.5b", changed=share)
    items = sum(message.bytes for message in messages) / 2
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
    ],
)
def test_sizes_that_do_not_fit_are_rejected(sizes, error):
    with pytest.raises(ValueError, match=error):
        build_flow("weights", sizes)
