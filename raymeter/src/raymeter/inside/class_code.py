# SPDX-License-Identifier: Apache-2.0
"""Measure the code of a class that travels with each message, because readers cannot import the class.

cloudpickle pickles such a class with its methods: one of the script (module __main__), one inside of a function, or one
of a module that is registered for this.
"""

import time

from . import describe, ray_internals

PASSES = 2  # the faster one counts
MAX_CLASSES = 1_000  # that are remembered

measured = {}  # module and name of a class, which is not kept alive itself -> bytes and seconds of its code


def find_class_code(value, inband):
    """Return type, bytes and seconds of the class in a message that brings most code; None without one.

    `inband` is the pickle of the message. If it has no code of a class, no part is looked at. Return None, too, if none
    of the parts that are looked at has a class with code that can be pickled.
    """
    if not ray_internals.has_class_code(inband):
        return None
    kinds = {type(part) for _, part in describe.walk(value)}
    found = None
    for kind in kinds:
        size, seconds = known_code(kind)
        if size and (found is None or size > found["bytes"]):
            found = {"type": kind.__qualname__, "bytes": size, "seconds": seconds}
    return found


def known_code(kind):
    """Return what `measure_code` does, and has returned for the first class of this name."""
    key = kind.__module__, kind.__qualname__
    found = measured.get(key)
    if found is None:
        found = measure_code(kind)
        if len(measured) < MAX_CLASSES:
            measured[key] = found
    return found


def measure_code(kind):
    """Return the bytes of the code of a class, and the seconds that pickling it takes; the faster one of PASSES.

    Return zeros if readers import the class, or if it cannot be pickled.

    The code may hold references, for example in a global variable. Ray would keep their objects as long as this
    process lives if the class was pickled outside of a message.
    """
    fastest = float("inf")
    for _ in range(PASSES):
        begin = time.perf_counter()
        try:
            _, code, _ = ray_internals.serialise_parts(kind)
        except Exception:
            return 0, 0.0
        fastest = min(fastest, time.perf_counter() - begin)
    return (len(code), fastest) if ray_internals.has_class_code(code) else (0, 0.0)
