# SPDX-License-Identifier: Apache-2.0
"""Time what a message costs besides copies: pickling, the hash of the verification, and waking another process."""

import os
import pickle
import time
from collections.abc import Callable
from typing import NoReturn

import xxhash

REPEATS = 5
ROUND_TRIPS = 1000
NUMBERS = 200_000  # Python integers in a pickled list, 5 bytes each
HASHED_BYTES = 64 * 2**20
PROTOCOL = 5  # of pickle, as in Ray


def time_work(work: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """Return the seconds of each repeat of some work."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def time_pickle() -> tuple[list[float], int]:
    """Return the seconds in which a list of integers is pickled, once per repeat, and the bytes of its pickle."""
    first = 2**16
    numbers = list(range(first, first + NUMBERS))
    pickled = pickle.dumps(numbers, PROTOCOL)
    seconds = time_work(lambda: pickle.dumps(numbers, PROTOCOL))
    return seconds, len(pickled)


def time_hash() -> list[float]:
    """Return the seconds in which HASHED_BYTES are hashed as a verification does, once per repeat."""
    data = bytes(HASHED_BYTES)
    return time_work(lambda: xxhash.xxh3_64(data).intdigest())


class Echo:
    """Another process that sends each byte back. It ends when this one closes its pipe."""

    def __init__(self) -> None:
        read_there, self.writer = os.pipe()
        self.reader, write_there = os.pipe()
        self.process = os.fork()
        if not self.process:
            self.answer(read_there, write_there)
        os.close(read_there)
        os.close(write_there)

    def answer(self, reader: int, writer: int) -> NoReturn:
        """Send bytes back, and end this process, also if it is interrupted: it must not go on as its parent."""
        try:
            os.close(self.writer)
            os.close(self.reader)
            while data := os.read(reader, 1):
                os.write(writer, data)
        finally:
            os._exit(0)

    def round_trip(self) -> None:
        """Send a byte, and wait until it is back."""
        os.write(self.writer, b"x")
        os.read(self.reader, 1)

    def close(self) -> None:
        os.close(self.writer)
        os.close(self.reader)
        os.waitpid(self.process, 0)


def time_round_trips() -> list[float]:
    """Return the seconds of each round trip of one byte to another process and back."""
    echo = Echo()
    try:
        return time_work(echo.round_trip, ROUND_TRIPS)
    finally:
        echo.close()
