"""Send only the parameters that an update has changed: their values and positions.

The sender compares its parameters with a copy of the version before, and sends an int32 index for each value that has
changed. The receivers write the values into their parameters. All begin with version 0, as if they had loaded the same
checkpoint.
"""

from typing import Any

import numpy as np
import torch

from dataflow.endpoints.payload import encode_number, make_field, raw_bytes
from dataflow.endpoints.tensors import Payload, assemble, flat_items, from_array
from dataflow.flows.message import VALUES, Message
from dataflow.studies.weights.flow import INDICES


def initial_parameters(sender: str, message: Message, device: Any) -> Payload:
    """Return version 0 of all parameters of a message."""
    fields = []
    for field in message.fields:
        (array,) = make_field(field, sender, slot=0)
        encoded = encode_number(field, 0)
        np.frombuffer(raw_bytes(array), np.uint8)[: len(encoded)] = list(encoded)
        fields.append([from_array(array, field.dtype).to(device)])
    return assemble(message, fields)


class Changes:
    """Find what has changed since the last call. This needs a copy of all parameters."""

    def __init__(self, sender: str, message: Message, device: Any) -> None:
        self.before = initial_parameters(sender, message, device)

    def __call__(self, payload: Payload, message: Message) -> Payload:
        sent = {}
        for field in message.fields:
            new, old = flat_items(payload, field), flat_items(self.before, field)
            indices = (new != old).nonzero().squeeze(1)
            values = new[indices]
            old[indices] = values
            sent[field.name + VALUES] = values.view(getattr(torch, field.dtype))
            sent[field.name + INDICES] = indices.to(torch.int32)
        return sent


def apply_changes(received: Payload, message: Message, parameters: Payload) -> Payload:
    """Write the received values into the parameters, and return them."""
    for field in message.fields:
        items = flat_items(parameters, field)
        items[received[field.name + INDICES].long()] = received[field.name + VALUES].view(items.dtype)
    return parameters
