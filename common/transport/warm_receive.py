"""Warm memory for what Ray's `shm` hint copies out of a channel: --reuse-buffers.

Ray copies each message into newly allocated memory (serialization_context.py, the last line of
deserialize_from_numpy_or_scalar). Over 32 MiB that is unmapped when it is freed, so every trip faults in
every page of it again: 448 MiB in pages of 4 KiB. Here the copy goes into memory that is used again.
"""

import weakref
from typing import Any

import numpy as np
import torch

SMALLEST_BYTES = 2**20  # below this the allocator keeps its memory anyway


class Buffers:
    """Memory for copies; handed out again when the last tensor or view that lies in it has gone."""

    def __init__(self) -> None:
        self.slots: dict[int, list[list[Any]]] = {}

    def copy(self, array: np.ndarray) -> torch.Tensor:
        """A tensor of the array's shape and bytes in memory of this process."""
        slots = self.slots.setdefault(array.nbytes, [])
        slot = next((slot for slot in slots if slot[1]() is None), None)
        if slot is None:
            slot = [np.empty(array.nbytes, np.uint8), None]
            slots.append(slot)
        lease = slot[0].view(array.dtype).reshape(array.shape)  # the tensor, and every view of it, keep it alive
        slot[1] = weakref.ref(lease)
        np.copyto(lease, array)
        return torch.from_numpy(lease)


def install() -> None:
    """Let the channels of this process copy into such memory; the messages themselves stay Ray's own.

    It replaces one method of a private class of Ray's on the reader's side. Small, scalar and GPU tensors
    keep Ray's way.
    """
    from ray.experimental.channel import ChannelContext

    context = ChannelContext.get_current().serialization_context
    buffers, ray_own = Buffers(), context.deserialize_from_numpy_or_scalar

    def deserialize(array: Any, dtype: torch.dtype, source: str, target: Any) -> torch.Tensor:
        if source != "cpu" or not isinstance(array, np.ndarray) or array.nbytes < SMALLEST_BYTES:
            return ray_own(array, dtype, source, target)
        return buffers.copy(array).view(dtype)

    context.deserialize_from_numpy_or_scalar = deserialize
