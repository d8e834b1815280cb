"""Make numbered random messages, time the iterations that move them, and verify every byte outside of the clock.

A sender has SLOTS random tensors, which are equal in every process that makes them. Message N is tensor N % SLOTS with
the sequence number N in its first 8 bytes. Readers compare the number, and a 64-bit hash of all other bytes.
"""

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xxhash
from tqdm import tqdm

from common import SuiteError
from common.sizes import EDGES, NUMBER_BYTES

SLOTS = 3  # a transport that reuses two buffers would show an old message as a new one


def time_group(
    numbers: Sequence[int], in_flight: int, send: Callable[[int], Any], receive: Callable[[Any], Any],
    save_times: Callable[[int, float, float], Any], clock: Callable[[], float] = time.perf_counter,
) -> None:  # fmt: skip
    """Run these iterations with at most `in_flight` of them open, and save the number, start and end of each.

    The clock of an iteration starts before `send`, which writes the sequence number and hands the query to the
    transport. It stops after `receive`, which gets what `send` returned, and waits until the driver holds the results.
    """

    def finish_oldest() -> None:
        number, start, sent = open_iterations.popleft()
        receive(sent)
        save_times(number, start, clock())

    open_iterations: deque[tuple[int, float, Any]] = deque()
    for number in numbers:
        if len(open_iterations) == in_flight:
            finish_oldest()
        start = clock()
        open_iterations.append((number, start, send(number)))
    while open_iterations:
        finish_oldest()


def count_iterations(warmup: int, iterations: int) -> Iterable[int]:
    """Yield the sequence numbers of a first iteration, a warm-up and the timed iterations; show a progress bar."""
    return tqdm(range(1, 2 + warmup + iterations), disable=None, leave=False)  # None: only on a terminal


def measure_memcpy(sizes: Mapping[str, int], passes: int = 4) -> list[float]:
    """Return the seconds of each pass: one copy per edge, one after the other, into memory that was used before."""
    pairs = [[torch.ones(sizes[sender], dtype=torch.uint8) for _ in range(2)] for sender, _ in EDGES]
    return [copy_seconds(pairs) for _ in range(1 + passes)][1:]


def copy_seconds(pairs: Iterable[Sequence[torch.Tensor]], synchronise: Callable[[], Any] = lambda: None) -> float:
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
        self.name, self.sizes, self.device = name, sizes, device
        self.senders = [sender for sender, reader in EDGES if reader == name]
        self.pool = [torch.from_numpy(items).to(device) for items in random_pool(name, sizes[name])]
        self.digests = {
            sender: [digest([items.view(np.uint8).data]) for items in random_pool(sender, sizes[sender])]
            for sender in self.senders
        }
        self.inputs: Sequence[torch.Tensor] = ()
        self.numbers: list[int] = []  # of the inputs, as they were when the inputs arrived

    def message(self, number: int) -> torch.Tensor:
        """Return the message with this sequence number: a tensor that exists already."""
        tensor = self.pool[number % SLOTS]
        tensor[0] = number
        return tensor

    def receive(self, *inputs: torch.Tensor) -> int:
        """Hold these messages instead of those before, and return their number. To read it waits for copies to GPUs."""
        for sender, tensor in zip(self.senders, inputs, strict=True):
            # A compiled graph passes an error to a method as its argument.
            if not isinstance(tensor, torch.Tensor) or tensor.nbytes != self.sizes[sender]:
                raise SuiteError(f"{sender} -> {self.name}: expected {self.sizes[sender]} bytes, got {tensor!r:.100}")
        self.inputs, self.numbers = inputs, [int(tensor[0]) for tensor in inputs]
        return self.numbers[0]

    def verify(self, number: int) -> None:
        """Raise SuiteError if the messages that are held are not those that were sent with this sequence number."""
        for sender, tensor, read_number in zip(self.senders, self.inputs, self.numbers, strict=True):
            data, slot = tensor.cpu().numpy().view(np.uint8), number % SLOTS
            if read_number != number or digest([data.data]) != self.digests[sender][slot]:
                expected = random_pool(sender, self.sizes[sender])[slot]
                expected[0] = number
                wrong = np.count_nonzero(data != expected.view(np.uint8))
                raise SuiteError(f"{sender} -> {self.name}: {wrong} bytes of message {number} differ from what was "
                                 f"sent, and it arrived with number {read_number}")  # fmt: skip


def random_pool(sender: str, message_bytes: int) -> list[np.ndarray]:
    """Return the payloads of a sender as int64 items, without sequence numbers."""
    limits, count = np.iinfo(np.int64), message_bytes // 8
    generators = [random_generator(sender, slot) for slot in range(SLOTS)]
    return [generator.integers(limits.min, limits.max, count, np.int64, endpoint=True) for generator in generators]


def random_generator(sender: str, slot: int, field: str = "") -> np.random.Generator:
    """Return a generator of random numbers, which are the same in every process."""
    seed = [zlib.crc32(sender.encode()), slot, zlib.crc32(field.encode())]
    return np.random.Generator(np.random.SFC64(seed))


def digest(parts: Iterable[memoryview], skip: int = NUMBER_BYTES) -> int:
    """Return the XXH3-64 hash of all parts of a message, without the first `skip` bytes of the first part."""
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(part[skip:])
        skip = 0
    return state.intdigest()
