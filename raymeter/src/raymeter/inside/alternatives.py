# SPDX-License-Identifier: Apache-2.0
"""Serialise a message in other ways that fit it, to know on this machine what each would save.

The results are dropped. A message is measured once per kind, by its sender, as Ray itself would serialise it. Of a
message with very many items, a part of them is measured.
"""

import contextlib
import functools
import math
import sys
import time

from . import ray_internals, reading, samples
from .conversions import CONVERSIONS
from .limits import Limits, OutOfBudget, TooSlow, always

MAX_BYTES = 512 * 2**20  # of a message; larger ones are not measured
PASSES = 2  # the faster one counts
ONE_PASS_SECONDS = 0.02  # of a pass that is long enough to be measured once
AS_IT_IS = "as it is"
CONVERT_SECONDS = 0.1  # that a conversion may take in any case
CONVERT_PASSES = 20  # times the serialisation, which it may take in addition


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


def measure(value, event, known=None, has_time=always):
    """Return what serialising and reading a message takes as it is, and in each other way that fits.

    Each is {"serialise": seconds, "deserialise": seconds, "bytes": all, "inband_bytes": in the pickle}, with the time
    of the conversion as "convert", which the program would often spend once instead of for each message. A way that
    does not fit is an empty dict, and one that was given up because converting takes too long is None. `known` has
    those that were measured before; what there was no time for is missing. If only a sample was measured, the numbers
    are scaled to the whole message, and "share" says how much it was. Return only `known` for a message of more than
    MAX_BYTES, or with references in it.
    """
    results = dict(known or {})
    if event["bytes"] > MAX_BYTES or event.get("references"):
        return results
    try:
        sample = take_sample(value, event, has_time)
    except OutOfBudget:
        return results
    except Exception:  # the message contains itself, or taking a part of its items takes too long
        results.setdefault(AS_IT_IS, None)
        return results
    is_sample = sample is not value
    as_it_is = {}
    if AS_IT_IS not in results or is_sample:
        as_it_is = measure_value(sample, 0.0)
        results.setdefault(AS_IT_IS, finish(as_it_is, as_it_is, event, is_sample))
    with contextlib.suppress(OutOfBudget):  # the others are measured in later messages
        add_conversions(results, sample, as_it_is, event, is_sample, has_time)
    return results


def take_sample(value, event, has_time):
    """Return a part of a large message, in a time that goes with that of its serialisation."""
    limits = Limits(seconds_for(event.get("seconds", math.inf)), has_time)
    return samples.take_sample(value, event.get("inband_bytes", 0), limits)


def seconds_for(serialise_seconds):
    """Return how long converting a message may take."""
    return CONVERT_SECONDS + CONVERT_PASSES * serialise_seconds


def add_conversions(results, sample, as_it_is, event, is_sample, has_time):
    """Add to `results` what was measured of each conversion, as long as there is time.

    Add nothing if the message itself could not be measured. Raise OutOfBudget if the time ends within a conversion.
    """
    if not results[AS_IT_IS] or (is_sample and not as_it_is):
        return
    seconds = seconds_for((as_it_is or results[AS_IT_IS])["serialise"])
    for name, convert in CONVERSIONS.items():
        if name in results:
            continue
        if not has_time():
            break
        limited = functools.partial(convert_within, convert, seconds, has_time)
        measured = measure_converted(sample, limited)
        results[name] = finish(measured, as_it_is, event, is_sample)


def convert_within(convert, seconds, has_time, value):
    """Return the converted message; raise TooSlow or OutOfBudget if this takes too long."""
    return convert(value, Limits(seconds, has_time))


def finish(measured, as_it_is, event, is_sample):
    """Return what was measured, for the whole message."""
    return samples.scale(measured, as_it_is, event) if is_sample and measured else measured


def is_complete(results):
    """Return whether a message was measured in all ways."""
    return AS_IT_IS in results and (not results[AS_IT_IS] or set(CONVERSIONS) <= set(results))


def measure_converted(value, convert):
    """Return what a message takes after a conversion; an empty dict if it changes nothing, or fails.

    Return None if it takes too long, and raise OutOfBudget if there is no more time for any.
    """
    try:
        converted, seconds = convert_without_imports(value, convert)
    except OutOfBudget:
        raise
    except TooSlow:
        return None
    except Exception:
        return {}
    if converted is value or converted is None:
        return {}
    return measure_value(converted, seconds)


def convert_without_imports(value, convert):
    """Return the converted message, and the seconds that this took, again if a library has imported another one."""
    modules = len(sys.modules)
    try:
        converted, seconds = timed(convert, value)
    except TooSlow:
        if len(sys.modules) == modules:
            raise
    if len(sys.modules) > modules:
        converted, seconds = timed(convert, value)
    return converted, seconds


def timed(convert, value):
    """Return the converted message, and the seconds that this took."""
    begin = time.perf_counter()
    converted = convert(value)
    return converted, time.perf_counter() - begin


def measure_value(value, convert_seconds):
    """Return what serialising and reading a value takes: the pass of PASSES that serialises it fastest.

    `convert_seconds` becomes "convert". If reading the value would run code of its classes, it is only serialised:
    "is_read" is False then. Return an empty dict if it cannot be pickled or read, or if copies of it must not be made.
    """
    best = {}
    is_read = None
    for _ in range(PASSES):
        try:
            begin = time.perf_counter()
            pack, inband, buffers = ray_internals.serialise_parts(value)
            serialise_seconds = time.perf_counter() - begin
            if is_read is None:
                is_read = not inband or reading.may_read(inband, buffers)
            read_seconds = time_reading(pack, inband, buffers, type(value)) if is_read else 0.0
        except Exception:
            return {}
        inside = len(pack) + len(inband)
        measured = {
            "convert": convert_seconds,
            "serialise": serialise_seconds,
            "deserialise": read_seconds,
            "is_read": is_read,
            "bytes": sum(buffer.raw().nbytes for buffer in buffers) + inside,
            "inband_bytes": inside,
            "buffers": len(buffers),
        }
        if not best or serialise_seconds < best["serialise"]:
            best = measured
        if serialise_seconds + read_seconds > ONE_PASS_SECONDS:
            break
    return best


def time_reading(pack, inband, buffers, kind):
    """Return the seconds that reading a message takes."""
    begin = time.perf_counter()
    ray_internals.deserialise_parts(pack, inband, buffers, kind)
    return time.perf_counter() - begin
