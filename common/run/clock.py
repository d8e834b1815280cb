"""The one timing loop, and the deadline of a trip."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any


class TripTimeout(Exception):
    """A trip that did not end in time."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise TripTimeout in the main thread if the block takes longer.

    Ray's waits give way to KeyboardInterrupt alone, so that is what the alarm raises inside them.
    """
    expired = finished = False

    def expire(*_: Any) -> None:
        nonlocal expired
        if not finished:
            expired = True
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
        finished = True
    except KeyboardInterrupt:
        if expired:
            raise TripTimeout(f"did not end within {seconds:g} s (--timeout)") from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@dataclass(frozen=True)
class Trip:
    """One trip that ended: its number from 1, when it began, its time, and whether it counts as a sample."""

    number: int
    kind: str  # "first", "warmup" or "timed"
    start: float  # on the clock
    seconds: float


def run_trips(
    warmup: int,
    iterations: int,
    make_query: Callable[[int], Any],
    send: Callable[[Any], Any],
    receive: Callable[[Any], None],
    limit: Callable[[], AbstractContextManager[None]] = nullcontext,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Trip]:
    """Yield the first trip, `warmup` more, and `iterations` timed ones.

    The clock runs from `send`, which hands the query over, until `receive`, which waits until the
    driver's device holds the results. The query is made before; the caller checks the bytes between
    two trips, while the clock stands. `limit` is entered around each trip, outside the clock.
    """
    for number in range(1, 1 + warmup + iterations + 1):
        query = make_query(number)
        with limit():
            start = clock()
            receive(send(query))
            seconds = clock() - start
        kind = "first" if number == 1 else "warmup" if number <= 1 + warmup else "timed"
        yield Trip(number, kind, start, seconds)
