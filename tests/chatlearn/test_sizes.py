"""What messages take when Ray serialises them, which needs no cluster, against the bytes of ChatLearn's formulas."""

import pytest
import ray
import torch

from common.flow.catalogue import build_flow
from common.payload.outbox import Outbox

MEGATRON = {"rows": 128, "prompt_len": 512, "response_len": 512}  # of ChatLearn's llama2-7B script


@pytest.mark.parametrize(
    ("name", "shipped"), [("online-dpo", True), ("ppo", False), ("grpo-math", False), ("dpo", False)], ids=str
)
def test_each_tensor_takes_a_few_hundred_bytes_more_than_its_formula_says(name, shipped):
    flow = build_flow(name, MEGATRON | ({"as_shipped": True} if shipped else {}), "fields")
    context = ray._private.worker.global_worker.get_serialization_context()
    for sender in ("driver", *(task.name for task in flow.tasks)):
        message = flow.message(sender)
        payload = Outbox(sender, message, 1, torch.device("cpu"), False, None).pool[0]
        more = context.serialize(payload).total_bytes - message.shipped_bytes
        tensors = sum(not leaf.field.python for leaf in message.leaves)
        others = len(message.leaves) - tensors
        assert 250 * tensors < more < 700 + 300 * tensors + 16 * others, (sender, more, tensors)
