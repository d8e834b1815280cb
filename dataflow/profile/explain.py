"""Explain what one message costs with Ray, field by field, and measure the change that makes a field cheaper.

It runs in the programs of users, so it imports only the standard library and modules of the profiler, and no `common`.
"""

import pickle
import time
from contextlib import suppress
from dataclasses import dataclass
from resource import RUSAGE_SELF, getrusage
from statistics import median
from typing import Any

from dataflow.profile.inside.dataflow_recorder import MAX_PARTS, describe, describe_leaf, walk
from dataflow.profile.terminal import Column, format_table, terminal_width
from dataflow.units import format_bytes

REPEATS = 5
CHANGES = {
    "not contiguous": "contiguous()",
    "view": "clone()",
    "tensors in the pickle": "numpy()",
    "pickled by its class": "numpy()",
    "numbers": "numpy.array",
    "bytes in the pickle": "numpy.frombuffer",
}


@dataclass(frozen=True)
class Cost:
    """What it costs to send and read a value once."""

    stored: int  # bytes
    pickled: int  # those of them inside of the pickle
    faults: float
    seconds: float


def measure(value: Any) -> Cost:
    """Return the median cost of a value."""
    from ray import cloudpickle  # what Ray serialises with

    faults = []
    seconds = []
    for _ in range(REPEATS):
        buffers: list[pickle.PickleBuffer] = []
        faults_before = getrusage(RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        data = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        stored = [bytes(buffer.raw()) for buffer in buffers]
        pickle.loads(data, buffers=stored)
        seconds.append(time.perf_counter() - start)
        faults.append(getrusage(RUSAGE_SELF).ru_minflt - faults_before)
    total = len(data) + sum(map(len, stored))
    return Cost(total, len(data), median(faults), median(seconds))


def change(part: Any) -> Any:
    """Return a tensor, array, list of numbers or bytes as a contiguous array with memory of its own."""
    import numpy

    if isinstance(part, (bytes, bytearray)):
        return numpy.frombuffer(part, "uint8")
    with suppress(TypeError, RuntimeError):  # numpy has no bfloat16, for example
        return part.numpy().copy() if hasattr(part, "numpy") else numpy.array(part)
    return part.clone()


def change_all(value: Any) -> list[Any]:
    """Return the tensors, arrays, lists of numbers and bytes of a value, changed."""
    changed = []
    for _, part, _ in walk(value, MAX_PARTS):
        if describe_leaf(part):
            changed.append(change(part))
    return changed


def find_changes(fields: list[list[Any]]) -> list[str]:
    """Return the causes of the fields, each with the change that is measured."""
    causes: set[str] = set()
    for field in fields:
        causes.update(field[-1])
    return [f"{cause}: {text}" for cause, text in CHANGES.items() if cause in causes]


def explain_field(name: str, value: Any) -> list[str]:
    """Return the row of a field."""
    described = describe(value)
    held = described["bytes"]
    changes = find_changes(described["fields"])
    cost = measure(value)
    copies = (cost.stored + cost.pickled) / max(1, held)
    after = "-"
    if changes:
        seconds = measure(change_all(value)).seconds
        after = f"{seconds * 1e3:.3g}"
    return [
        name,
        format_bytes(held),
        format_bytes(cost.stored),
        f"{copies:.3g}",
        f"{cost.faults:.0f}",
        f"{cost.seconds * 1e3:.3g}",
        after,
        ", ".join(changes) or "-",
    ]


def explain(message: Any) -> None:
    """Print a row per field of a message: its bytes, copies, page faults, time, change, and the time after it."""
    fields = message if isinstance(message, dict) else getattr(message, "__dict__", None)
    rows = [
        explain_field(str(name), value)
        for name, value in (fields or {"(message)": message}).items()
    ]
    names, held, stored, copies, faults, before, after, changes = map(list, zip(*rows, strict=True))
    columns = [
        Column("field", names, is_text=True),
        Column("held", held, rank=3),
        Column("stored", stored, rank=1),
        Column("copies", copies, rank=2),
        Column("faults", faults, rank=4),
        Column("ms", before),
        Column("ms after", after),
        Column("cause: change", changes, is_text=True),
    ]
    print(format_table(columns, terminal_width()))
