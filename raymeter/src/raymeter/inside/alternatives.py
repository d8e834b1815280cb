"""Serialise a message in other ways that fit it, to know on this machine what each would save.

The results are dropped. A message is measured once per kind, by its sender, as Ray itself would serialise it.
"""

import time

from . import ray_internals
from .conversions import CONVERSIONS

MAX_BYTES = 512 * 2**20  # of a message; larger ones are not measured
PASSES = 2  # the faster one counts
ONE_PASS_SECONDS = 0.02  # of a pass that is long enough to be measured once
AS_IT_IS = "as it is"


def dumps(value):
    """Return the pickle of a value and its buffers, as Ray makes them."""
    pack, inband, buffers = ray_internals.serialise_parts(value)
    return pack + inband, buffers


def pickled_bytes(value):
    """Return the bytes of a value's pickle with its buffers; 0 if it cannot be pickled."""
    try:
        inband, buffers = dumps(value)
    except Exception:
        return 0
    return len(inband) + sum(buffer.raw().nbytes for buffer in buffers)


def always():
    return True


def measure(value, event, known=None, has_time=always):
    """Return what serialising and reading a message takes as it is, and in each other way that fits.

    Each is {"serialise": seconds, "deserialise": seconds, "bytes": all, "inband_bytes": in the pickle}, with the time
    of the conversion as "convert", which the program would often spend once instead of for each message. A way that
    does not fit is an empty dict. `known` has those that were measured before; what there was no time for is missing.
    """
    results = dict(known or {})
    if event["bytes"] > MAX_BYTES or event.get("references"):
        return results
    if AS_IT_IS not in results:
        results[AS_IT_IS] = measure_value(value, 0.0)
    for name, convert in CONVERSIONS.items():
        if name in results or not results[AS_IT_IS]:
            continue
        if not has_time():
            break
        results[name] = measure_converted(value, convert)
    return results


def is_complete(results):
    """Return whether a message was measured in all ways."""
    return AS_IT_IS in results and (not results[AS_IT_IS] or set(CONVERSIONS) <= set(results))


def measure_converted(value, convert):
    """Return what a message takes after a conversion; an empty dict if it changes nothing, or fails."""
    begin = time.perf_counter()
    try:
        converted = convert(value)
    except Exception:
        return {}
    seconds = time.perf_counter() - begin
    if converted is value or converted is None:
        return {}
    return measure_value(converted, seconds)


def measure_value(value, convert_seconds):
    """Return the fastest of PASSES; an empty dict if it cannot be pickled."""
    best = {}
    for _ in range(PASSES):
        begin = time.perf_counter()
        try:
            pack, inband, buffers = ray_internals.serialise_parts(value)
            middle = time.perf_counter()
            ray_internals.deserialise_parts(pack, inband, buffers, type(value))
        except Exception:
            return {}
        end = time.perf_counter()
        inside = len(pack) + len(inband)
        measured = {
            "convert": convert_seconds,
            "serialise": middle - begin,
            "deserialise": end - middle,
            "bytes": sum(buffer.raw().nbytes for buffer in buffers) + inside,
            "inband_bytes": inside,
            "buffers": len(buffers),
        }
        if not best or middle - begin < best["serialise"]:
            best = measured
        if end - begin > ONE_PASS_SECONDS:
            break
    return best
