"""Describe a message without its values: what it holds and what makes it expensive. It runs in the user's processes."""

from itertools import islice
from math import prod

MAX_PARTS = 50_000  # of a message; the others are not described
MAX_NAMES = 64  # of keys in a dict; more are probably data and not names
LONG_LIST = 1000  # numbers, from which on a list of them is a cause


def describe(value):
    """Return the bytes that a value holds, and its fields; each is [name, dtype, shape, count, items, bytes, causes].

    A field is a tensor, an array, or everything in one list. Its shape is that of the part with the most items.
    """
    fields = {}
    for name, part in walk(value, MAX_PARTS):
        leaf = describe_leaf(part)
        if leaf is not None:
            dtype, shape, size, causes = leaf
            field = fields.setdefault((name, dtype), [name, dtype, shape, 0, 0, 0, []])
            field[2:6] = max(field[2], shape, key=prod), field[3] + 1, field[4] + prod(shape), field[5] + size
            field[6] += [cause for cause in causes if cause not in field[6]]
    kept = sorted((field for field in fields.values() if field[5]), key=lambda field: -field[5])
    return {"bytes": sum(field[5] for field in kept), "fields": kept[:MAX_NAMES]}


def is_tensor(part):
    return not isinstance(part, type) and (hasattr(part, "untyped_storage") or hasattr(part, "__array_interface__"))


def is_numbers(part):
    return isinstance(part, (list, tuple)) and len(part) > 0 and {*map(type, (*part[:8], part[-1]))} <= {int, float}


def describe_leaf(part):
    """Return dtype, shape, bytes and causes of a tensor, array, text or list of numbers; None for others."""
    if is_tensor(part):
        causes, is_plain = [], str(getattr(part, "layout", "torch.strided")) == "torch.strided"
        size = int(part.nbytes) if is_plain else 0  # a sparse tensor is not described
        if not getattr(getattr(part, "flags", None), "forc", True):
            causes.append("not contiguous")
        if hasattr(part, "untyped_storage") and part.device.type == "cpu":
            causes.append("tensors in the pickle")  # with the part of its storage that it does not show
            if is_plain and not part.is_nested and part.untyped_storage().nbytes() > size:
                causes.append("view")
        shape = (size,) if getattr(part, "is_nested", False) else tuple(part.shape)
        return str(part.dtype).replace("torch.", ""), shape, size, causes
    if isinstance(part, (bytes, bytearray, str)):
        is_text = isinstance(part, str)
        return "str" if is_text else "bytes", (len(part),), len(part), [] if is_text else ["bytes in the pickle"]
    if is_numbers(part):
        dtype = "floats" if isinstance(part[0], float) else "ints"
        return dtype, (len(part),), 8 * len(part), ["numbers"] if len(part) >= LONG_LIST else []
    return None


def walk(value, max_parts):
    """Yield name and value of each part of a message once. A key that cannot be a name is not stored."""
    parts, seen = [("", value)], set()
    while parts and len(seen) < max_parts:
        name, part = parts.pop()
        if id(part) in seen:  # for example, an object that refers to its parent
            continue
        seen.add(id(part))
        yield name, part
        if isinstance(part, (list, tuple, set)):
            parts += [] if is_numbers(part) else [(f"{name}[]", item) for item in islice(part, max_parts)]
        elif not is_tensor(part) and not isinstance(part, (str, bytes, bytearray, type)) and not callable(part):
            items = part if isinstance(part, dict) else getattr(part, "__dict__", {})
            for key, item in islice(items.items(), max_parts):
                named = len(items) <= MAX_NAMES and isinstance(key, str) and key.replace(".", "_").isidentifier()
                parts.append((f"{name}.{key if named else '*'}".lstrip("."), item))
