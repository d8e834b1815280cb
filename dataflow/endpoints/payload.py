"""Make random payloads, and count the bytes that arrived wrong.

Each sender has several different payloads, one per slot. Message N is the payload of slot N % slots, with the sequence
number N in the first bytes of every field. A reader compares the sequence numbers, and a 64-bit hash of all other
bytes, field by field. Only if one of them differs, it makes the expected field again and counts the wrong bytes.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from common.timing import random_generator
from dataflow.flows.message import ARRAY_DTYPES, ITEM_BYTES, NUMBER_BYTES, Field

Digests = dict[str, list[list[int]]]  # sender -> per slot and field, the hash of the bytes without sequence number

NUMBER_BOOLS = 32  # a field of bools holds one bit of the sequence number per item


def make_field(field: Field, sender: str, slot: int) -> list[Any]:
    """Return an array (or string) for each of `field.shapes`: random, but equal in every process."""
    if field.is_parameter and slot % 2:  # the second state of a parameter is the first one with some items inverted
        (array,) = make_field(field, sender, slot - 1)
        items = array.reshape(-1).view(f"u{array.itemsize}")
        for part in field.changed_items:
            items[part] = np.invert(items[part])
        return [array]
    generator = random_generator(sender, slot, field.name)
    if field.offsets_of:
        return [np.cumsum([0, *field.offsets_of])]
    if field.dtype == "str":
        return [generator.integers(97, 123, count, np.uint8).tobytes().decode() for count in field.lengths]
    dtype = np.dtype(ARRAY_DTYPES.get(field.dtype, field.dtype))
    if dtype.kind in "iu":  # all values of the type, and all bits of a bfloat16
        limits = np.iinfo(dtype)
        arrays = [generator.integers(limits.min, limits.max, shape, dtype, endpoint=True) for shape in field.shapes]
    elif dtype.kind == "b":
        arrays = [generator.integers(0, 2, shape, np.uint8).view(dtype) for shape in field.shapes]
    else:
        arrays = [generator.random(shape).astype(dtype) for shape in field.shapes]
    return [array.tolist() for array in arrays] if field.is_python else arrays


def number_bytes(field: Field) -> int:
    """Return the bytes of the sequence number in the first row of the field's first tensor.

    0 if that is empty, or if the values are offsets, which readers use.
    """
    if field.is_python or field.offsets_of or not math.prod(field.shapes[0]):
        return 0
    row_bytes = (field.shapes[0] or (1,))[-1] * ITEM_BYTES[field.dtype]
    return min(row_bytes, NUMBER_BOOLS if field.dtype == "bool" else NUMBER_BYTES)


def encode_number(field: Field, number: int) -> bytes:
    """Return a sequence number as it is written into the field: its lowest bytes (or bits) first, as many as fit."""
    count = number_bytes(field)
    if field.dtype == "bool":
        return bytes(number >> bit & 1 for bit in range(count))
    return number.to_bytes(NUMBER_BYTES, "little")[:count]


def digest(tensors: Sequence[Any], skip: int) -> int:
    """Return the XXH3-64 hash of a field's arrays or strings, without the first `skip` bytes of the first one."""
    state = xxhash.xxh3_64()
    for part in map(raw_bytes, tensors):
        state.update(part[skip:])
        skip = 0
    return state.intdigest()


def raw_bytes(tensor: Any) -> memoryview:
    """Return the bytes of an array, a string or a list of numbers, without gaps."""
    if isinstance(tensor, str):
        return memoryview(tensor.encode())
    return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data


def count_wrong_bytes(
    received: Sequence[Any], field: Field, number: int, sender: str, slot: int, expected_digest: int
) -> int:
    """Return how many bytes of a received field, of the right shapes, differ from those sent as message `number`."""
    encoded = encode_number(field, number)
    if bytes(raw_bytes(received[0])[: len(encoded)]) == encoded and digest(received, len(encoded)) == expected_digest:
        return 0
    actual = b"".join(map(raw_bytes, received))
    expected = bytearray().join(map(raw_bytes, make_field(field, sender, slot)))
    expected[: len(encoded)] = encoded
    return int(np.count_nonzero(np.frombuffer(actual, np.uint8) != np.frombuffer(expected, np.uint8)))
