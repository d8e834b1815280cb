"""Measure the code of a class that travels with each message, because readers cannot import the class.

cloudpickle pickles such a class with its methods: one of the script (module __main__), one inside of a function, or one
of a module that is registered for this.
"""

import time
from functools import lru_cache

from ray import cloudpickle

from . import describe, ray_internals

PASSES = 2  # the faster one counts


def find_class_code(value, inband):
    """Return type, bytes and seconds of the class in a message that brings most code; None without one.

    `inband` is the pickle of the message, in which this is seen without looking at its parts.
    """
    if not ray_internals.has_class_code(inband):
        return None
    kinds = {type(part) for _, part in describe.walk(value)}
    found = None
    for kind in kinds:
        size, seconds = measure_code(kind)
        if size and (found is None or size > found["bytes"]):
            found = {"type": kind.__qualname__, "bytes": size, "seconds": seconds}
    return found


@lru_cache(maxsize=1_000)
def measure_code(kind):
    """Return the bytes of the code of a class, and the seconds that pickling it takes; zeros if it is imported."""
    fastest = float("inf")
    for _ in range(PASSES):
        begin = time.perf_counter()
        try:
            code = cloudpickle.dumps(kind)
        except Exception:
            return 0, 0.0
        fastest = min(fastest, time.perf_counter() - begin)
    return (len(code), fastest) if ray_internals.has_class_code(code) else (0, 0.0)
