# SPDX-License-Identifier: Apache-2.0
"""Define messages: their fields with dtype and shape, the layout of a packed message, and the tensors of models."""

import math
import operator
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dataflow.errors import did_you_mean
from dataflow.units import parse_bytes

NUMBER_BYTES = 8  # of a sequence number
MODELS = tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))
ITEM_BYTES = {
    "int64": 8,
    "int32": 4,
    "uint8": 1,
    "bool": 1,
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "str": 1,
    "ints": 8,
    "floats": 8,
}
# Python objects -> the dtype they are packed as.
PYTHON_DTYPES = {"str": "uint8", "ints": "int64", "floats": "float64"}
ARRAY_DTYPES = PYTHON_DTYPES | {"bfloat16": "uint16"}  # of numpy arrays, which have no bfloat16
# The ends of the names of the two fields of a jagged one.
VALUES = "_values"
OFFSETS = "_offsets"
ALIGNMENT_BYTES = 8  # of each field in a packed message, so that it can be viewed as any dtype


@dataclass(frozen=True)
class Field:
    """One entry of a message: a tensor, a list of tensors, or a list of Python objects; raise ValueError if invalid."""

    name: str  # "" if the message is this one tensor and not a dict
    dtype: str  # a key of ITEM_BYTES: "str" is a list of strings; "ints" and "floats" are lists of lists of numbers
    shape: tuple[int, ...] = ()  # of the tensor; () if the field is a list
    # For a list: the items of each flat tensor, or the UTF-8 bytes of each string.
    lengths: tuple[int, ...] = ()
    # The shape of a larger tensor. The field's tensor is a view of its first corner; in a list, each tensor is a view
    # of the beginning of one of its rows. Pickling a view writes its full storage.
    storage: tuple[int, ...] = ()
    # The sender keeps the tensor in one place, and inverts the bits of some items from one message to the next.
    is_parameter: bool = False
    changed_share: float = 1.0  # of the items
    # For lengths: the field has where each tensor of a jagged field begins, and the end.
    offsets_of: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown dtype, a wrong shape or lengths, or a storage that is too small."""
        if self.dtype not in ITEM_BYTES:
            raise ValueError(
                f"field {self.name!r}: unknown dtype {self.dtype}. Use one of {', '.join(ITEM_BYTES)}."
            )
        if (self.shape and self.lengths) or (self.is_python and not self.lengths):
            raise ValueError(
                f"field {self.name!r}: give a shape for a tensor, or lengths for strings and lists"
            )
        for number in (*self.shape, *self.lengths, *self.storage):
            if not isinstance(number, int) or number < 0:
                raise ValueError(
                    f"field {self.name!r}: {number} in a shape or length is not a whole number from 0"
                )
        extent = (len(self.lengths), max(self.lengths)) if self.lengths else self.shape
        if self.storage and (
            len(self.storage) != len(extent) or any(map(operator.gt, extent, self.storage))
        ):
            raise ValueError(f"field {self.name!r} is larger than the storage that it is a view of")

    @property
    def is_python(self) -> bool:
        return self.dtype in PYTHON_DTYPES

    @property
    def packed_dtype(self) -> str:
        """Return the dtype of the tensor as which the field is packed."""
        return PYTHON_DTYPES.get(self.dtype, self.dtype)

    @property
    def array_dtype(self) -> str:
        """Return the dtype of the field's numpy arrays."""
        return ARRAY_DTYPES.get(self.dtype, self.dtype)

    @property
    def is_list(self) -> bool:
        return bool(self.lengths)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [(count,) for count in self.lengths] if self.is_list else [self.shape]

    @cached_property
    def bytes(self) -> int:
        return sum(map(math.prod, self.shapes)) * ITEM_BYTES[self.dtype]

    @property
    def changed_items(self) -> list[slice]:
        """Return the items of a parameter, as a flat tensor, that differ between two messages.

        The first one is the lowest part of the sequence number, and the last ones show readers the version. The others
        are evenly spaced.
        """
        count = math.prod(self.shape)
        number_items = NUMBER_BYTES // ITEM_BYTES[self.dtype]
        first = min(self.shape[-1], number_items)
        end = max(first, count - number_items)
        return [slice(0, 1), slice(first, end, round(1 / self.changed_share)), slice(end, count)]

    @property
    def serialised_bytes(self) -> int:
        """Return the bytes that pickling writes: each view with its full storage."""
        storage_bytes = len(self.shapes) * math.prod(self.storage) * ITEM_BYTES[self.dtype]
        return storage_bytes if self.storage else self.bytes


@dataclass(frozen=True)
class Message:
    """The data that one task sends; raise ValueError if no tensor can hold a sequence number, or for equal names."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if (
            len(set(self.names)) < len(self.names)
            or not self.names
            or ("" in self.names and len(self.names) > 1)
        ):
            raise ValueError(f"a message needs fields with distinct names; got {self.names}")
        if not any(not field.is_python and math.prod(field.shapes[0]) for field in self.fields):
            raise ValueError(f"message of {self.names}: no tensor has bytes for a sequence number")

    @cached_property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    @property
    def sizes(self) -> Sequence["Message"]:
        """Return the message at each of its sizes, in turn: message N is that of N % len(sizes)."""
        return (self,)

    def at(self, number: int) -> "Message":
        """Return the message of this number, at its own size."""
        return self.sizes[number % len(self.sizes)]

    @property
    def largest(self) -> "Message":
        return max(self.sizes, key=lambda message: message.bytes)

    @property
    def is_flat(self) -> bool:
        return not self.fields[0].name

    @property
    def is_parameters(self) -> bool:
        return self.fields[0].is_parameter

    @cached_property
    def bytes(self) -> int:
        return sum(field.bytes for field in self.fields)

    @property
    def least_bytes(self) -> int:
        """Return the bytes that any encoding needs: at least one for each number in a list."""
        return sum(
            f.bytes // NUMBER_BYTES if f.dtype in ("ints", "floats") else f.bytes
            for f in self.fields
        )

    @cached_property
    def jagged_names(self) -> list[str]:
        """Return the names of the lists of tensors that were made jagged."""
        return [field.name.removesuffix(OFFSETS) for field in self.fields if field.offsets_of]

    @property
    def sample_counts(self) -> set[int]:
        """Return the numbers of entries of the fields: one number if each field has one entry per sample."""
        return {
            len(field.lengths) if field.is_list else (field.shape or (1,))[0]
            for field in self.fields
        }

    @property
    def serialised_bytes(self) -> int:
        return sum(field.serialised_bytes for field in self.fields)

    @cached_property
    def tensor_bytes(self) -> tuple[int, ...]:
        """Return the bytes of each tensor, string and list of numbers, field by field."""
        sizes: list[int] = []
        for field in self.fields:
            item_bytes = ITEM_BYTES[field.dtype]
            sizes += [math.prod(shape) * item_bytes for shape in field.shapes]
        return tuple(sizes)

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Return the bytes of each field in the packed message; the tensors of a list have no gaps between them."""
        spans = []
        end = 0
        for field in self.fields:
            begin = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            end = begin + field.bytes
            spans.append(slice(begin, end))
        return tuple(spans)

    @property
    def packed_bytes(self) -> int:
        return self.spans[-1].stop


def jagged_message(message: Message) -> Message:
    """Return the message with each list of tensors as one tensor of all values, and one of where each part begins.

    Single tensors, strings and lists of numbers stay as they are.
    """
    fields: list[Field] = []
    for field in message.fields:
        if not field.is_list or field.is_python:
            fields.append(field)
            continue
        fields.append(Field(field.name + VALUES, field.dtype, shape=(sum(field.lengths),)))
        offsets = (1 + len(field.lengths),)
        fields.append(Field(field.name + OFFSETS, "int64", shape=offsets, offsets_of=field.lengths))
    return Message(tuple(fields))


def flat_message(count: int) -> Message:
    """Return a message of `count` bytes as one tensor: int64 if 8 divides the count, else uint8.

    Raise ValueError for less than 1 byte.
    """
    if count < 1:
        raise ValueError(f"a message of {count} bytes: give at least 1")
    return Message(
        (Field("", "uint8", (count,)) if count % 8 else Field("", "int64", (count // 8,)),)
    )


ACKNOWLEDGEMENT = flat_message(8)  # the sequence number and nothing else


def model_fields(model: str, scale: float, lora_rank: int = 0) -> list[Field]:
    """Return the tensors of a model, or two adapter matrices per matrix of a layer. A size is one flat tensor.

    With a scale, the first dimension of each tensor is smaller, and at least 1. Vectors have no adapters. Raise
    ValueError for an unknown model, for a size below 8 bytes (after scaling), and for a size with `lora_rank`.
    """
    if model not in MODELS:
        try:
            items = round(parse_bytes(model) * scale) // NUMBER_BYTES
        except ValueError:
            items = 0
        if not items:
            known = ", ".join(MODELS)
            raise ValueError(
                f"unknown --model {model}{did_you_mean(model, MODELS)}: give {known}, "
                "or the size of one flat tensor of at least 8 bytes, such as 1GiB"
            )
        if lora_rank:
            raise ValueError(f"--lora-rank: a --model of {model} has no matrices: leave it out")
        return [Field("flat", "int64", shape=(items,), is_parameter=True)]
    known = MODELS[model]
    lines = [] if lora_rank else list(known["once"])
    for layer in range(known["layers"]):
        lines += [f"{layer}.{line}" for line in known["layer"]]
        for expert in range(known.get("experts", 0)):
            lines += [f"{layer}.{expert}.{line}" for line in known["expert"]]
    shapes: dict[str, tuple[int, ...]] = {}
    for line in lines:
        name, first, *rest = line.split()
        rows = max(1, round(int(first) * scale))
        columns = tuple(map(int, rest))
        if not lora_rank:
            shapes[name] = (rows, *columns)
        elif columns:
            shapes |= {f"{name}.lora_A": (lora_rank, *columns), f"{name}.lora_B": (rows, lora_rank)}
    return [Field(name, known["dtype"], shape, is_parameter=True) for name, shape in shapes.items()]
