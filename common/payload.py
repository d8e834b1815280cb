"""Make numbered random messages, and verify every byte of those that arrive.

A sender has SLOTS random tensors, which are equal in every process that makes them. Message N is tensor N % SLOTS with
the sequence number N in its first 8 bytes. A reader compares the number, and a 64-bit hash of all other bytes.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xxhash

from common import RunFailed
from common.sizes import EDGES

NUMBER_BYTES = 8
SLOTS = 3  # a transport that reuses two buffers would show an old message as new


class Endpoint:
    """Make the messages that one model (or the driver) sends, and hold and verify those that it receives."""

    def __init__(self, name: str, sizes: Mapping[str, int], device: str = "cpu") -> None:
        torch.set_num_threads(1)  # as the copies that the memcpy time consists of
        self.name, self.sizes, self.device = name, sizes, device
        self.senders = [sender for sender, reader in EDGES if reader == name]
        self.pool = [torch.from_numpy(random_items(name, slot, sizes[name])).to(device) for slot in range(SLOTS)]
        self.digests = {
            sender: [digest([random_items(sender, slot, sizes[sender])], NUMBER_BYTES) for slot in range(SLOTS)]
            for sender in self.senders
        }
        self.inputs: Sequence[torch.Tensor] = ()
        self.numbers: list[int] = []

    def message(self, number: int) -> torch.Tensor:
        """Return the message with this sequence number: a tensor that exists already, on this endpoint's device."""
        tensor = self.pool[number % SLOTS]
        tensor[0] = number
        return tensor

    def receive(self, *inputs: torch.Tensor) -> int:
        """Hold the messages of an iteration in place of those before, and return their sequence number.

        A tensor on a GPU has arrived when its number can be read. Raise RunFailed if a message is not a tensor: a
        compiled graph passes an error as an argument.
        """
        for sender, tensor in zip(self.senders, inputs, strict=True):
            if not isinstance(tensor, torch.Tensor) or not tensor.numel():
                raise RunFailed(f"{sender} -> {self.name}: expected a tensor, and got {tensor!r:.100}")
        self.inputs, self.numbers = inputs, [int(tensor[0]) for tensor in inputs]
        return self.numbers[0]

    def verify(self, number: int) -> dict[str, int]:
        """Return the wrong bytes of each edge on which message `number` did not arrive as it was sent."""
        wrong = {}
        for sender, tensor, read_number in zip(self.senders, self.inputs, self.numbers, strict=True):
            items, slot = tensor.cpu().numpy(), number % SLOTS
            is_equal = read_number == number and items.nbytes == self.sizes[sender]
            if not is_equal or digest([items], NUMBER_BYTES) != self.digests[sender][slot]:
                wrong[f"{sender} -> {self.name}"] = self._count_wrong_bytes(items, sender, number)
        return wrong

    def _count_wrong_bytes(self, items: np.ndarray, sender: str, number: int) -> int:
        expected = random_items(sender, number % SLOTS, self.sizes[sender])
        expected[0] = number
        if items.nbytes != expected.nbytes:
            return expected.nbytes
        different = np.frombuffer(raw_bytes(items), np.uint8) != np.frombuffer(raw_bytes(expected), np.uint8)
        return max(1, int(np.count_nonzero(different)))  # 1: the number was wrong when the message arrived


def random_generator(sender: str, slot: int, field: str = "") -> np.random.Generator:
    """Return a generator of random values that is equal in every process."""
    seed = [zlib.crc32(sender.encode()), slot, zlib.crc32(field.encode())]
    return np.random.Generator(np.random.SFC64(seed))


def random_items(sender: str, slot: int, message_bytes: int) -> np.ndarray:
    """Return a message as int64 items, without a sequence number."""
    limits = np.iinfo(np.int64)
    return random_generator(sender, slot).integers(limits.min, limits.max, message_bytes // 8, np.int64, endpoint=True)


def digest(parts: Sequence[Any], skip: int) -> int:
    """Return the XXH3-64 hash of all arrays or strings of a message, without the first `skip` bytes of the first."""
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(raw_bytes(part)[skip:])
        skip = 0
    return state.intdigest()


def raw_bytes(part: Any) -> memoryview:
    """Return the bytes of an array, a string or a list of numbers, without gaps."""
    if isinstance(part, str):
        return memoryview(part.encode())
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
