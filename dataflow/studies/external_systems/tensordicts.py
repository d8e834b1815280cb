# SPDX-License-Identifier: Apache-2.0
"""Convert messages to the tensordict package's TensorDict and back, as verl's utilities build it.

verl-project/verl, verl/utils/tensordict_utils.py: list_of_dict_to_tensordict.
"""

import logging
from collections.abc import Sequence
from typing import Any

import torch

from dataflow.endpoints.tensors import Payload, assemble, tensors_of
from dataflow.errors import RunFailed
from dataflow.flows.flow import Edge
from dataflow.flows.message import Message
from dataflow.study import Part

# On import, tensordict calls a function whose name torch is changing, and torch warns of that.
logging.getLogger("torch.fx").setLevel(logging.ERROR)

from tensordict import NonTensorStack, TensorDict  # noqa: E402


class TensorDictPart(Part):
    name = "external_systems"

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        for outbox in endpoint.outboxes.values():
            outbox.convert_with(to_tensordict)

    def received(self, task: str, inputs: Sequence[Any]) -> Sequence[Any]:
        pairs = zip(inputs, self.endpoint.inboxes[task].edges, strict=True)
        return [from_tensordict(*pair) for pair in pairs]


def to_tensordict(payload: Payload, message: Message) -> Any:
    """Return a TensorDict with one entry per field, and a batch size of one entry per sample.

    A list of tensors of equal lengths becomes a tensor [samples, length], another list a jagged nested tensor, and
    strings and lists of numbers non-tensor data. A flat message is returned unchanged.
    """
    if message.is_flat:
        return payload
    # One number, because find_errors of this study rejects messages whose fields have several.
    (batch_size,) = message.sample_counts
    values: dict[str, Any] = {}
    for field in message.fields:
        items = tensors_of(payload, field)
        if field.is_python:
            values[field.name] = NonTensorStack(*items)
        elif not field.is_list:
            values[field.name] = items[0]
        elif len(set(field.lengths)) == 1:
            values[field.name] = torch.stack(items)
        else:
            values[field.name] = torch.nested.as_nested_tensor(items, layout=torch.jagged)
    return TensorDict(values, batch_size=[batch_size])


def from_tensordict(received: Any, edge: Edge) -> Payload:
    """Return the payload with a view of each sample of a list; raise RunFailed if it is no TensorDict.

    A flat message is returned unchanged.
    """
    if edge.message.is_flat:
        return received
    if not isinstance(received, TensorDict):
        raise RunFailed(f"expected a TensorDict for {edge}; got {type(received).__name__}")
    fields: list[list[Any]] = []
    for field in edge.message.fields:
        value = received.get(field.name)
        if field.is_python:
            fields.append(value.tolist())
        elif field.is_list:
            fields.append(list(value.unbind()))
        else:  # TransferQueue makes one nested tensor of all rows
            fields.append([value.values().view(field.shape) if value.is_nested else value])
    return assemble(edge.message, fields)
