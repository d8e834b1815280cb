# SPDX-License-Identifier: Apache-2.0
"""Make numbered random messages, time the iterations that move them, and verify every byte outside of the clock.

A sender has a tensor for each of MASKS: random numbers, which are equal in every process, with inverted bits. Message N
is tensor N % 3 with the sequence number N in its first 8 bytes. Readers compare all bytes.
"""

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from common import SuiteError
from common.sizes import EDGES, MODELS

# Every byte differs from message to message. Three, because a transport that reuses two buffers would show an old one.
MASKS = (0, 0x5555555555555555, ~0x5555555555555555)

Send = Callable[[int], Any]  # gets the sequence number
Receive = Callable[[Any], Any]  # gets what Send has returned
SaveTimes = Callable[[int, float, float], Any]  # gets the number, start and end
Clock = Callable[[], float]


def time_group(
    numbers: Sequence[int],
    in_flight: int,
    send: Send,
    receive: Receive,
    save_times: SaveTimes,
    clock: Clock = time.perf_counter,
) -> None:
    """Run these iterations with at most `in_flight` of them open, and save the number, start and end of each.

    The clock of an iteration starts before `send`, which writes the sequence number and hands the query to the
    transport. It stops after `receive`, which gets what `send` returned, and waits until the driver holds the results.
    """
    open_iterations: deque[tuple[int, float, Any]] = deque()
    for number in numbers:
        start = clock()
        open_iterations.append((number, start, send(number)))
        # Wait for the oldest one before another is sent, and after the last one was sent for all that are open.
        while len(open_iterations) == in_flight or (open_iterations and number == numbers[-1]):
            oldest, start, sent = open_iterations.popleft()
            receive(sent)
            save_times(oldest, start, clock())


def count_iterations(warmup: int, iterations: int) -> Iterable[int]:
    """Yield the sequence numbers of a first iteration, a warm-up and the timed iterations; show a progress bar."""
    first_iterations = 1
    numbers = range(1, 1 + first_iterations + warmup + iterations)
    return tqdm(numbers, disable=None, leave=False)  # None: only on a terminal


class HeldMessage(NamedTuple):
    """A message, and its sequence number when it arrived: a late write of the sender would change the tensor."""

    tensor: torch.Tensor
    number: int


class ScriptEndpoint:
    """Make the messages that a model or the driver sends, and hold and verify those that it receives.

    With `is_direct`, messages between models must arrive on the device. Others are copied to it.
    """

    def __init__(
        self,
        name: str,
        sizes: Mapping[str, int],
        device: str = "cpu",
        is_direct: bool = False,
    ) -> None:
        torch.set_num_threads(1)
        self.name = name
        self.device = device
        # Then, messages from models must arrive on a GPU.
        self.is_direct = is_direct and name in MODELS
        # A message is one of these tensors with its number in it.
        self.pool = make_pool(name, sizes[name], device)
        # What each sender's messages are made of, in the order of the inputs.
        self.expected = {
            sender: random_items(sender, sizes[sender])
            for sender, reader in EDGES
            if reader == name
        }
        self.held: list[HeldMessage] = []

    def message(self, number: int) -> torch.Tensor:
        """Return the message with this sequence number: a tensor that exists already."""
        tensor = self.pool[number % len(MASKS)]
        tensor[0] = number
        return tensor

    def receive(self, *inputs: torch.Tensor) -> int:
        """Hold these messages on the device instead of those before, and return their number: copies to GPUs end first.

        Raise SuiteError for what is no message, or did not arrive where it must.
        """
        for sender, tensor in zip(self.expected, inputs, strict=True):
            self.check_message(sender, tensor)
        tensors = [tensor.to(self.device) for tensor in inputs]
        self.held = [HeldMessage(tensor, int(tensor[0])) for tensor in tensors]
        return self.held[0].number

    def check_message(self, sender: str, tensor: object) -> None:
        """Raise SuiteError if this is no message of the sender. A compiled graph passes an error as an argument."""
        edge = f"{sender} -> {self.name}"
        expected_bytes = self.expected[sender].nbytes
        if not isinstance(tensor, torch.Tensor) or tensor.nbytes != expected_bytes:
            raise SuiteError(f"{edge}: expected {expected_bytes} bytes, got {tensor!r:.100}")
        if self.is_direct and sender in MODELS and tensor.device.type == "cpu":
            raise SuiteError(f"{edge}: the message arrived on the CPU, and not on a GPU")

    def verify(self, number: int) -> None:
        """Raise SuiteError if the messages that are held are not those that were sent with this sequence number."""
        for sender, held in zip(self.expected, self.held, strict=True):
            wrong_bytes = self.count_wrong_bytes(sender, held.tensor, number)
            if wrong_bytes or held.number != number:
                edge = f"{sender} -> {self.name}"
                raise SuiteError(
                    f"{edge}: {wrong_bytes} bytes of message {number} differ from what was sent, "
                    f"and it arrived with number {held.number}"
                )

    def count_wrong_bytes(self, sender: str, tensor: torch.Tensor, number: int) -> int:
        """Return how many bytes differ from those of the sender's message with this sequence number."""
        received = tensor.cpu().numpy()
        sent = self.expected[sender] ^ MASKS[number % len(MASKS)]
        sent[0] = number
        if np.array_equal(received, sent):
            return 0
        is_wrong = received.view(np.uint8) != sent.view(np.uint8)
        return int(np.count_nonzero(is_wrong))

    def owns_messages(self) -> bool:
        """Return whether the messages that are held are on a GPU or in memory of this process only, and no views."""
        shared = find_shared_memory()
        for held in self.held:
            is_on_host = held.tensor.device.type == "cpu"
            address = held.tensor.data_ptr()
            if is_on_host and any(address in addresses for addresses in shared):
                return False
        return True


def find_shared_memory() -> list[range]:
    """Return the addresses of the memory that this process shares with others."""
    shared = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, *_ = line.split()
        if permissions.endswith("s"):
            start, end = addresses.split("-")
            shared.append(range(int(start, 16), int(end, 16)))
    return shared


def make_pool(sender: str, message_bytes: int, device: str) -> list[torch.Tensor]:
    """Return a tensor for each mask, of which the sender's messages are made."""
    items = random_items(sender, message_bytes)
    tensors = [torch.from_numpy(items ^ mask) for mask in MASKS]
    return [tensor.to(device) for tensor in tensors]


def random_items(sender: str, message_bytes: int) -> np.ndarray:
    """Return the random int64 items that the messages of a sender are made of."""
    random_bytes = random_generator(sender).bytes(message_bytes)
    return np.frombuffer(random_bytes, np.int64)


def random_generator(sender: str, slot: int = 0, field: str = "") -> np.random.Generator:
    """Return a generator of random numbers, which are the same in every process."""
    sender_hash = zlib.crc32(sender.encode())
    field_hash = zlib.crc32(field.encode())
    bits = np.random.SFC64([sender_hash, slot, field_hash])
    return np.random.Generator(bits)
