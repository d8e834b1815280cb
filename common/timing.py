"""Make numbered random messages, time the iterations that move them, and verify every byte outside of the clock.

A sender has a tensor for each of MASKS: random numbers, which are equal in every process, with inverted bits. Message N
is tensor N % 3 with the sequence number N in its first 8 bytes. Readers compare all bytes.
"""

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from common import SuiteError
from common.sizes import EDGES

# Every byte differs from message to message. Three, because a transport that reuses two buffers would show an old one.
MASKS = (0, 0x5555555555555555, ~0x5555555555555555)


def time_group(
    numbers: Sequence[int], in_flight: int, send: Callable[[int], Any], receive: Callable[[Any], Any],
    save_times: Callable[[int, float, float], Any], clock: Callable[[], float] = time.perf_counter,
) -> None:  # fmt: skip
    """Run these iterations with at most `in_flight` of them open, and save the number, start and end of each.

    The clock of an iteration starts before `send`, which writes the sequence number and hands the query to the
    transport. It stops after `receive`, which gets what `send` returned, and waits until the driver holds the results.
    """
    open_iterations: deque[tuple[int, float, Any]] = deque()
    for number in numbers:
        start = clock()
        open_iterations.append((number, start, send(number)))
        while len(open_iterations) == in_flight or (open_iterations and number == numbers[-1]):
            oldest, start, sent = open_iterations.popleft()
            receive(sent)
            save_times(oldest, start, clock())


def count_iterations(warmup: int, iterations: int) -> Iterable[int]:
    """Yield the sequence numbers of a first iteration, a warm-up and the timed iterations; show a progress bar."""
    return tqdm(
        range(1, 2 + warmup + iterations), disable=None, leave=False
    )  # None: only on a terminal


def measure_memcpy(sizes: Mapping[str, int], passes: int = 4) -> list[float]:
    """Return the seconds of each pass: one copy per edge, one after the other, into memory that was used before."""
    pairs = [
        [torch.ones(sizes[sender], dtype=torch.uint8) for _ in range(2)] for sender, _ in EDGES
    ]
    return [copy_seconds(pairs) for _ in range(1 + passes)][1:]


def copy_seconds(
    pairs: Iterable[Sequence[torch.Tensor]], synchronise: Callable[[], Any] = lambda: None
) -> float:
    """Return the seconds in which each source is copied to its target. `synchronise` waits for copies on GPUs."""
    start = time.perf_counter()
    for source, target in pairs:
        target.copy_(source)
    synchronise()
    return round(time.perf_counter() - start, 9)


class Endpoint:
    """Make the messages that a model or the driver sends, and hold and verify those that it receives."""

    def __init__(self, name: str, sizes: Mapping[str, int], device: str = "cpu") -> None:
        torch.set_num_threads(1)
        self.name, self.device, items = name, device, random_items(name, sizes[name])
        self.pool = [torch.from_numpy(items ^ mask).to(device) for mask in MASKS]
        self.expected = {
            sender: random_items(sender, sizes[sender])
            for sender, reader in EDGES
            if reader == name
        }
        self.held: list[
            tuple[torch.Tensor, int]
        ] = []  # messages, and their numbers when they arrived

    def message(self, number: int) -> torch.Tensor:
        """Return the message with this sequence number: a tensor that exists already."""
        tensor = self.pool[number % len(MASKS)]
        tensor[0] = number
        return tensor

    def receive(self, *inputs: torch.Tensor) -> int:
        """Hold these messages instead of those before, and return their number. To read it waits for copies to GPUs."""
        for (sender, items), tensor in zip(self.expected.items(), inputs, strict=True):
            # A compiled graph passes an error to a method as its argument.
            if not isinstance(tensor, torch.Tensor) or tensor.nbytes != items.nbytes:
                raise SuiteError(
                    f"{sender} -> {self.name}: expected {items.nbytes} bytes, got {tensor!r:.100}"
                )
        self.held = [(tensor, int(tensor[0])) for tensor in inputs]
        return self.held[0][1]

    def verify(self, number: int) -> None:
        """Raise SuiteError if the messages that are held are not those that were sent with this sequence number."""
        for (sender, items), (tensor, read_number) in zip(
            self.expected.items(), self.held, strict=True
        ):
            received, expected = tensor.cpu().numpy(), items ^ MASKS[number % len(MASKS)]
            expected[0] = number
            if read_number != number or not np.array_equal(received, expected):
                wrong = np.count_nonzero(received.view(np.uint8) != expected.view(np.uint8))
                raise SuiteError(f"{sender} -> {self.name}: {wrong} bytes of message {number} differ from what was "
                                 f"sent, and it arrived with number {read_number}")  # fmt: skip


def random_items(sender: str, message_bytes: int) -> np.ndarray:
    """Return the random int64 items that the messages of a sender are made of."""
    return np.frombuffer(random_generator(sender).bytes(message_bytes), np.int64)


def random_generator(sender: str, slot: int = 0, field: str = "") -> np.random.Generator:
    """Return a generator of random numbers, which are the same in every process."""
    seed = [zlib.crc32(sender.encode()), slot, zlib.crc32(field.encode())]
    return np.random.Generator(np.random.SFC64(seed))
