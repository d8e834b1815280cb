# SPDX-License-Identifier: Apache-2.0
"""Take a part of the items of a large message, so that measuring it in other ways takes little time.

Each long list, dict and set keeps items from its beginning to its end. What is measured is scaled to the whole message
by the bytes of the pickle, which grow with the items.
"""

from itertools import islice

from . import containers, conversions, describe
from .limits import Limits

LARGE_BYTES = 2**19  # of a pickle, above which only a part of the items is measured
SAMPLE_BYTES = 2**16  # that the pickle of the part should have
MANY_NUMBERS = (
    2**16
)  # in a list, below which it stays whole: what an array of them takes hardly depends on its length
LONG = (*containers.SEQUENCES, set, frozenset)
TIMES = ("convert", "serialise", "deserialise")


def take_sample(value, inband_bytes, limits=None):
    """Return a message with a part of its items, if its pickle has so many bytes; else the message itself.

    Raise what its limits raise, as a conversion does.
    """
    if inband_bytes < LARGE_BYTES:
        return value
    share = SAMPLE_BYTES / inband_bytes
    return thin_out(value, share, limits or Limits())


def thin_out(value, share, limits):
    """Return a message whose long containers have this share of their items; itself if it has no long ones.

    A list that becomes columns or an array in other messages stays long enough for this. Raise what `limits` raise.
    """

    def convert(part):
        is_container = containers.is_mapping(part) or type(part) in LONG
        if not is_container:
            return part
        least = MANY_NUMBERS if describe.is_numbers(part) else conversions.MIN_ROWS
        count = max(least, int(share * len(part)))
        step = len(part) // count
        if step < 2:
            return part
        fewer = every(part, step)
        return fewer if describe.is_numbers(fewer) else thin_out_items(fewer, share, limits)

    return conversions.replace_parts(value, convert, limits)


def every(part, step):
    """Return a container with one of `step` items, from the first one on. A Counter becomes a dict."""
    if containers.is_mapping(part):
        return containers.with_values(part, islice(part.items(), 0, None, step))
    items = islice(part, 0, None, step)
    return (
        type(part)(items)
        if isinstance(part, (set, frozenset))
        else containers.with_items(part, items)
    )


def thin_out_items(part, share, limits):
    """Return a container whose items have this share of their own items."""
    entered = limits.enter([part])
    fewer = part
    if containers.is_mapping(part):
        pairs = {key: thin_out(item, share, limits) for key, item in part.items()}
        fewer = containers.with_values(part, pairs)
    elif type(part) in containers.SEQUENCES:
        items = [thin_out(item, share, limits) for item in part]
        fewer = containers.with_items(part, items)
    limits.leave(entered)
    return fewer


def scale(measured, sample, event):
    """Return what an alternative would take for all items, from what it took for a sample.

    `sample` is what the same items took as they are, and `event` describes the whole message. Large arrays that are
    no items of a long list are whole in the sample, so their bytes are not scaled. Return `measured` itself if it is
    empty, or if the sample is no smaller than the message.
    """
    factor = factor_of(sample, event)
    if not measured or factor <= 1:
        return measured
    whole = (factor * sample["bytes"] - event["bytes"]) / (factor - 1)
    whole = min(max(0.0, whole), sample["bytes"], measured["bytes"])
    scaled = dict(measured)
    for name in TIMES:
        scaled[name] = factor * measured[name]
    scaled["bytes"] = int(whole + factor * (measured["bytes"] - whole))
    scaled["inband_bytes"] = int(factor * measured["inband_bytes"])
    scaled["share"] = 1 / factor
    return scaled


def factor_of(sample, event):
    """Return how many times as much is inside of the pickle of a message as inside of that of its sample."""
    return event.get("inband_bytes", 0) / max(1, sample["inband_bytes"])
