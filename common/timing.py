"""Time iterations. The clock runs in `time_group` only; payloads are made before, and verified after it has stopped."""

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any

import torch
from tqdm import tqdm

from common import RunFailed
from common.record import Run
from common.sizes import EDGES

SETTLED_GROUPS = 3  # that take as long as as many before them
MAX_SETTLED_CHANGE = 0.1  # of their median time, and of the page faults that the next ones save
MIN_FAULTS = 100  # per iteration; fewer take less than 0.3 ms
MAX_WARMUP_SECONDS = 30
MEMCPY_PASSES = 4


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


def has_settled(seconds: Sequence[float], faults: Sequence[float] = ()) -> bool:
    """Return whether warm-up iterations (or groups of them) take as long as those before, with as many page faults."""
    if len(seconds) < 2 * SETTLED_GROUPS:
        return False
    before, last = slice(-2 * SETTLED_GROUPS, -SETTLED_GROUPS), slice(-SETTLED_GROUPS, None)
    old_seconds, new_seconds = median(seconds[before]), median(seconds[last])
    old_faults, new_faults = (fmean(faults[part]) if faults else 0.0 for part in (before, last))
    is_falling = old_faults - new_faults > max(MAX_SETTLED_CHANGE * old_faults, MIN_FAULTS)
    return abs(new_seconds - old_seconds) <= MAX_SETTLED_CHANGE * old_seconds and not is_falling


class Measurement:
    """Number the iterations of a run, time them, and check their bytes."""

    def __init__(self, run: Run, flags: argparse.Namespace) -> None:
        self.run, self.flags, self.sizes = run, flags, flags.sizes
        self.seconds: list[float] = []  # of the iterations that are going on: the first one, the warm-up or the timed
        run.memcpy_before_seconds = measure_memcpy(self.sizes)

    def numbers(self) -> Iterator[int]:
        """Yield the number of each iteration: the first one, those of the warm-up, and the timed ones."""
        yield 1
        self.run.first_seconds, number = self.seconds[0], 2
        self.seconds = warmup = self.run.warmup_seconds
        end = time.monotonic() + MAX_WARMUP_SECONDS
        while len(warmup) < self.flags.warmup if self.flags.warmup is not None else not has_settled(warmup):
            if self.flags.warmup is None and time.monotonic() > end:
                break
            yield number
            number += 1
        self.run.warmup_iterations = len(warmup)
        self.run.settled = None if self.flags.warmup is not None else has_settled(warmup)
        self.seconds = self.run.seconds
        yield from tqdm(range(number, number + self.flags.iterations), disable=None, leave=False)  # on a terminal
        self.run.memcpy_after_seconds = measure_memcpy(self.sizes)

    def time(self, number: int, send: Callable[[int], Any], receive: Callable[[Any], Any]) -> None:
        """Run one iteration while the clock runs: `send` gets its number, and `receive` what `send` returned."""
        time_group([number], 1, send, receive, self._save_times)

    def _save_times(self, _: int, start: float, end: float) -> None:
        self.seconds.append(end - start)

    def check(self, number: int, wrong_bytes: Iterable[Mapping[str, int]]) -> None:
        """Raise RunFailed if a model or the driver found wrong bytes in an iteration."""
        for wrong_of_reader in wrong_bytes:
            self.run.wrong_bytes_by_field |= wrong_of_reader
        for edge, count in self.run.wrong_bytes_by_field.items():
            self.run.wrong_bytes = sum(self.run.wrong_bytes_by_field.values())
            raise RunFailed(f"{edge}: {count} bytes of message {number} differ from what was sent")


def measure_memcpy(sizes: Mapping[str, int], passes: int = MEMCPY_PASSES) -> list[float]:
    """Return the seconds of each pass: one copy per edge, one after the other, into memory that was used before."""
    pairs = [[torch.ones(sizes[sender], dtype=torch.uint8) for _ in range(2)] for sender, _ in EDGES]
    return [copy_seconds(pairs) for _ in range(1 + passes)][1:]


def copy_seconds(pairs: Sequence[Sequence[torch.Tensor]]) -> float:
    """Return the seconds in which all sources are copied to their targets, also on GPUs."""
    start = time.perf_counter()
    for source, target in pairs:
        target.copy_(source)
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return round(time.perf_counter() - start, 9)
