"""The bytes that travel, and the check that they arrived: numpy alone, no Ray, no torch.

Every trip's payload differs. A sender owns several distinct random payloads, sends number `trip % slots` and stamps the
trip's number into the first bytes of every field that has any. A reader compares the stamps and a 64-bit hash of
everything else, field by field; only where one differs is the expected field made again, and the wrong bytes counted.
"""

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from common.flow.message import ITEM_BYTES, PYTHON, Field

STAMP_BYTES = 8
STAMP_BOOLS = 32  # a field of bools bears the number bit by bit


def make_field(field: Field, sender: str, slot: int) -> list[Any]:
    """Random and the same in every process that asks for it: an array (or string) for each of `field.shapes`."""
    seed = [zlib.crc32(sender.encode()), slot, zlib.crc32(field.name.encode())]
    generator = np.random.Generator(np.random.SFC64(seed))
    if field.dtype == "str":
        return [generator.integers(97, 123, count, np.uint8).tobytes().decode() for count in field.lengths]
    dtype = np.dtype(PYTHON.get(field.dtype, field.dtype))
    if dtype.kind in "iu":  # every value that the type has
        limits = np.iinfo(dtype)
        leaves = [generator.integers(limits.min, limits.max, shape, dtype, endpoint=True) for shape in field.shapes]
    elif dtype.kind == "b":
        leaves = [generator.integers(0, 2, shape, np.uint8).view(dtype) for shape in field.shapes]
    else:
        leaves = [generator.random(shape).astype(dtype) for shape in field.shapes]
    if field.python:
        return [leaf.tolist() for leaf in leaves]
    return _as_views(field, leaves) if field.storage else leaves


def _as_views(field: Field, leaves: list[np.ndarray]) -> list[np.ndarray]:
    """The same values as parts of one larger storage."""
    storage = np.zeros(field.storage, leaves[0].dtype)
    if field.ragged:
        views = [storage[index, : len(leaf)] for index, leaf in enumerate(leaves)]
    else:
        views = [storage[tuple(map(slice, field.shape))]]
    for view, leaf in zip(views, leaves, strict=True):
        view[...] = leaf
    return views


def stamp_bytes(field: Field) -> int:
    """How many bytes the stamp takes at the beginning of the field's first tensor, within its first row."""
    if field.python or not math.prod(field.shapes[0]):
        return 0
    count = (field.shapes[0] or (1,))[-1] * ITEM_BYTES[field.dtype]
    return min(count, STAMP_BOOLS if field.dtype == "bool" else STAMP_BYTES)


def stamp(field: Field, number: int) -> bytes:
    """What the stamp says: the number, little endian, or as much of it as fits."""
    count = stamp_bytes(field)
    if field.dtype == "bool":
        return bytes(number >> bit & 1 for bit in range(count))
    return (number % 256**count).to_bytes(count, "little")


def digest(leaves: Sequence[Any], skip: int) -> int:
    """XXH3-64 of a field's tensors or strings, one after the other, without the first `skip` bytes of the first."""
    state = xxhash.xxh3_64()
    for leaf in leaves:
        state.update(raw(leaf)[skip:])
        skip = 0
    return state.intdigest()


def raw(leaf: Any) -> memoryview:
    """The bytes of an array, string or list of numbers as they read, in one row."""
    if isinstance(leaf, str):
        return memoryview(leaf.encode())
    return np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data


def count_wrong_bytes(leaves: Sequence[Any], field: Field, number: int, sender: str, slot: int, expected: int) -> int:
    """How many bytes of a field that arrived are not what `sender` sent as this number; 0 means all is well.

    Args:
        leaves: what arrived, of the field's own types and shapes.
        slot: of the sender's payloads, which one it sent.
        expected: the digest of that one.
    """
    mark = stamp(field, number)
    if bytes(raw(leaves[0])[: len(mark)]) == mark and digest(leaves, len(mark)) == expected:
        return 0
    wrong, right = 0, make_field(field, sender, slot)
    for index, (found, made) in enumerate(zip(leaves, right, strict=True)):
        wanted = bytearray(raw(made))
        if index == 0:
            wanted[: len(mark)] = mark
        seen = np.frombuffer(raw(found), np.uint8)
        if len(seen) != len(wanted):  # a string of another length
            wrong += len(wanted)
        else:
            wrong += int(np.count_nonzero(seen != np.frombuffer(wanted, np.uint8)))
    return wrong
