"""What a message is: fields with dtype and shape. The one place that knows dtypes, and how messages are packed."""

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

ITEM_BYTES = {
    "int64": 8, "int32": 4, "uint8": 1, "bool": 1, "float64": 8, "float32": 4, "float16": 2, "str": 1,
    "ints": 8, "floats": 8,
}  # fmt: skip
PYTHON = {"str": "uint8", "ints": "int64", "floats": "float64"}  # Python's own objects, and what they are packed as
ALIGNMENT_BYTES = 8  # of a field in a packed message, so that it can be viewed as any dtype


@dataclass(frozen=True)
class Field:
    """One entry of a message.

    name: "" where the message is this one tensor and no dict.
    dtype: of ITEM_BYTES; "str", "ints" and "floats" are lists of strings, or of lists of Python's numbers.
    shape: of the tensor; () where `lengths` says it.
    lengths: a list instead of one tensor: of each of its flat tensors the items, of each string the UTF-8 bytes.
    storage: the shape of a larger tensor that this one is the first corner of, or, with `lengths`, whose rows its
        tensors begin. Such views need not be contiguous, and pickling one ships all of its storage.

    Raises:
        ValueError: the dtype is unknown, a shape negative, or strings have no lengths.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    storage: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"field {self.name!r}: the dtype {self.dtype} is unknown: give {', '.join(ITEM_BYTES)}")
        if self.python and (self.shape or not self.lengths):
            raise ValueError(f"field {self.name!r}: strings and lists need their lengths, or they cannot be packed")
        if min((*self.shape, *self.lengths), default=0) < 0 or (self.shape and self.lengths):
            raise ValueError(f"field {self.name!r}: give a shape, or the lengths of a list, none of them negative")
        extent = self._extent
        if self.storage and (len(self.storage) != len(extent) or any(map(operator.gt, extent, self.storage))):
            raise ValueError(f"field {self.name!r} is larger than the storage that it is a view of")

    @property
    def _extent(self) -> tuple[int, ...]:
        return (len(self.lengths), max(self.lengths)) if self.lengths else self.shape

    @property
    def python(self) -> bool:
        """Strings, or lists of Python's numbers: no tensors."""
        return self.dtype in PYTHON

    @property
    def ragged(self) -> bool:
        return bool(self.lengths)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of its tensor, or of each tensor (string) of its list."""
        return [(count,) for count in self.lengths] if self.ragged else [self.shape]

    @property
    def bytes(self) -> int:
        return sum(map(math.prod, self.shapes)) * ITEM_BYTES[self.dtype]

    @property
    def shipped_bytes(self) -> int:
        """With each tensor's whole storage, as it is pickled."""
        if not self.storage:
            return self.bytes
        return len(self.shapes) * math.prod(self.storage) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Leaf:
    """One tensor (or string) of a message, and where it lies when the message is packed."""

    field: Field
    shape: tuple[int, ...]
    offset: int

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.field.dtype]


@dataclass(frozen=True)
class Message:
    """What one task emits.

    Raises:
        ValueError: it has no field, two of one name, or nothing that can bear a number.
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        names = self.names
        if len(set(names)) < len(names) or not names or ("" in names and len(names) > 1):
            raise ValueError(f"a message needs fields, each with a name of its own; got {names}")
        if not any(not field.python and math.prod(field.shapes[0]) for field in self.fields):
            raise ValueError(f"nothing in the message of {names} can bear its number: the first tensors are empty")

    @cached_property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    @property
    def bare(self) -> bool:
        """It travels as the tensor itself, not as a dict."""
        return not self.fields[0].name

    @property
    def bytes(self) -> int:
        return sum(field.bytes for field in self.fields)

    @property
    def rows(self) -> set[int]:
        """Entries of its fields: one number, the samples, where each has one entry a sample."""
        return {len(field.lengths) if field.ragged else (field.shape or (1,))[0] for field in self.fields}

    @property
    def shipped_bytes(self) -> int:
        return sum(field.shipped_bytes for field in self.fields)

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Where the bytes of each field lie in the packed message; the leaves of a list follow each other in it."""
        found, end = [], 0
        for field in self.fields:
            begin = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            end = begin + field.bytes
            found.append(slice(begin, end))
        return tuple(found)

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The static table of offsets of the packed message."""
        return tuple(self._lay_out())

    def _lay_out(self) -> Iterator[Leaf]:
        for field, span in zip(self.fields, self.spans, strict=True):
            offset = span.start
            for shape in field.shapes:
                leaf = Leaf(field, shape, offset)
                yield leaf
                offset += leaf.bytes

    @property
    def packed_bytes(self) -> int:
        """Bytes of one flat buffer that holds every leaf."""
        return max(1, self.spans[-1].stop)


def flat(count: int) -> Message:
    """`count` bytes as one tensor: int64 where 8 divides them, else uint8."""
    if count < 1:
        raise ValueError(f"a message of {count} bytes")
    return Message((Field("", "uint8", (count,)) if count % 8 else Field("", "int64", (count // 8,)),))


WORD = flat(8)  # an answer: the number of its trip and nothing else
