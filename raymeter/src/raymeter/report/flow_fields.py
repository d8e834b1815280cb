# SPDX-License-Identifier: Apache-2.0
"""Describe the fields of a message as the laboratory's flow.toml has them."""

import json
from math import prod

from raymeter.profile.events import Field
from raymeter.profile.groups import Group

ITEM_BYTES = {
    "int64": 8,
    "int32": 4,
    "uint8": 1,
    "bool": 1,
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
}
LISTS = {"int": "ints", "float": "floats", "str": "str"}  # of Python objects
LIST_ITEM_BYTES = {"ints": 8, "floats": 8, "str": 1}
MIN_VIEW_FACTOR = 1.2  # bytes of the memory by bytes of the field, from which on it is a view
MIN_DESCRIBED_SHARE = 0.9  # of a message; if less is described, the rest is one more field
SEQUENCE_NUMBER = '{name = "sequence number", dtype = "int64", shape = [1]}'


def describe_fields(group: Group) -> str:
    """Return the fields of the messages of a group as text for a list of TOML.

    Bytes that no field describes are a field of their own if they are many. If no field is a tensor that can hold a
    sequence number, such a field is added.
    """
    fields = list(group.fields)
    described = sum(max(field.bytes, field.storage_bytes) for field in fields)
    if described < MIN_DESCRIBED_SHARE * group.bytes:
        rest = max(1, round(group.bytes - described))
        fields.append(Field(path="not described" if fields else "", dtype="bytes", bytes=rest))
    texts = []
    names: set[str] = set()
    for field in fields:
        name = field.path or "message"
        while name in names:  # for example, one with tensors of two dtypes
            name += "'"
        names.add(name)
        texts.append(write_field(name, field))
    if not any(holds_number(field) for field in fields):
        texts.append(SEQUENCE_NUMBER)
    return ", ".join(texts)


def dtype_of(field: Field) -> str:
    """Return the dtype in the flow. What the laboratory does not have, such as a table, becomes bytes."""
    dtype = LISTS.get(field.dtype, field.dtype)
    if dtype in ITEM_BYTES or dtype in LIST_ITEM_BYTES:
        return dtype
    return "uint8"


def is_list(field: Field) -> bool:
    return field.count > 1 or dtype_of(field) in LIST_ITEM_BYTES


def length_of(field: Field) -> int:
    """Return the items of each part of a list, which all get the mean length."""
    dtype = dtype_of(field)
    item_bytes = ITEM_BYTES.get(dtype) or LIST_ITEM_BYTES[dtype]
    return field.bytes // (item_bytes * field.count)


def shape_of(field: Field) -> list[int]:
    """Return the shape of a tensor; that of something else is its number of bytes."""
    dtype = dtype_of(field)
    if field.dtype == dtype and prod(field.shape) * ITEM_BYTES[dtype] == field.bytes:
        return field.shape
    return [field.bytes // ITEM_BYTES[dtype]]


def holds_number(field: Field) -> bool:
    """Return whether the first tensor of a field has bytes."""
    if dtype_of(field) in LIST_ITEM_BYTES:
        return False
    if is_list(field):
        return length_of(field) > 0
    return prod(shape_of(field)) > 0


def write_field(name: str, field: Field) -> str:
    """Return a field as TOML."""
    label = json.dumps(name, ensure_ascii=False)
    if is_list(field):
        lengths = [length_of(field)] * field.count
        form = f"lengths = {lengths}"
    else:
        form = f"shape = {shape_of(field)}"
    storage = storage_of(field)
    if storage:
        form += f", storage = {storage}"
    return f'{{name = {label}, dtype = "{dtype_of(field)}", {form}}}'


def storage_of(field: Field) -> list[int]:
    """Return the shape of the memory that views look at, which is pickled with each of them.

    Return [] for a field that is no view, has no items, or is no tensor of a dtype of ITEM_BYTES.
    """
    dtype = dtype_of(field)
    if dtype not in ITEM_BYTES or field.storage_bytes < MIN_VIEW_FACTOR * field.bytes:
        return []
    items = field.storage_bytes // ITEM_BYTES[dtype]
    if is_list(field):
        row = items // field.count**2  # each of `count` views is pickled with all `count` rows
        return [field.count, max(length_of(field), row)]
    shape = shape_of(field)
    if prod(shape) == 0:
        return []
    rest = prod(shape[1:])
    return [max(shape[0], items // rest), *shape[1:]] if shape else []
