# SPDX-License-Identifier: Apache-2.0
"""Write what one message costs with Ray, as a text."""

import importlib
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from raymeter.report.columns import align
from raymeter.units import format_bytes, format_milliseconds, significant

WIDTH = 80
PASSES = 5
MAX_FIELDS = 12  # that are listed
MANY_BUFFERS = 500
MAIN_SHARE = 0.5  # of the stored bytes, which the fields bring if they explain it
ALTERNATIVE_TEXTS = {
    "contiguous arrays": "numpy.ascontiguousarray(array)",
    "numpy arrays": "tensor.numpy()",
    "clones of views": "view.clone()",
    "own rows": "an Arrow table with its own rows only, without the buffers behind them",
    "one chunk": "table.combine_chunks()",
    "one column": "all columns of a type as one array",
    "arrays of numbers": "numpy.asarray(numbers)",
    "arrays of bytes": "numpy.frombuffer(data, numpy.uint8)",
    "Arrow tables": "pyarrow.Table.from_pandas(frame), or frame.to_arrow()",
    "without its own pickling": "its attributes as a dict of arrays",
    "its arrays": "its arrays beside the pickle (a matrix of scipy as CSR, an image as an array)",
    "one array": "one array in place of many",
    "columns": "one array per field",
}


@dataclass(frozen=True)
class Measured:
    """What Ray stores for a message, and how long it takes to serialise it."""

    stored_bytes: int
    inband_bytes: int
    buffers: int
    seconds: float
    is_rays: bool  # serialised with all of Ray's own reducers

    @property
    def inband_percent(self) -> float:
        return 100 * self.inband_bytes / max(1, self.stored_bytes)


def render(value: Any) -> str:
    """Return the text about a message: no value in it, only types, sizes and times."""
    measured = measure(value)
    fields = module("describe").describe(value)
    lines = [*describe_whole(value, fields, measured), ""]
    lines += describe_fields(fields)
    own = module("describe").find_own_pickling(value)
    if own:
        where = f"{own['path']}: " if own["path"] else ""
        lines += ["", f"{where}{own['class']} pickles itself in {own['method']} ({own['line']})."]
    lines += ["", *describe_alternatives(value, measured)]
    if not measured.is_rays:
        lines += [
            "",
            "Measured with cloudpickle alone, without Ray's reducers for Arrow and torch.",
        ]
    return "\n".join(lines)


def module(name: str) -> Any:
    """Return a module of raymeter.inside, which imports the user's Ray."""
    return importlib.import_module(f"raymeter.inside.{name}")


def measure(value: Any) -> Measured:
    """Return what Ray stores for a message, and the median time to serialise it.

    If no serialiser of Ray can be used, both are those of cloudpickle alone.
    """
    serialise, is_rays = module("ray_internals").make_serialiser()
    inband, buffers = module("alternatives").dumps(value)
    size = len(inband) + sum(buffer.raw().nbytes for buffer in buffers)
    if serialise is None:
        seconds = time_calls(lambda: module("alternatives").dumps(value))
        return Measured(size, len(inband), len(buffers), seconds, False)
    seconds = time_calls(lambda: serialise(value))
    stored = serialise(value).total_bytes
    return Measured(stored, min(len(inband), stored), len(buffers), seconds, is_rays)


def time_calls(call: Callable[[], object]) -> float:
    """Return the median of PASSES calls."""
    seconds = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return median(seconds)


def describe_whole(value: Any, fields: list[dict], measured: Measured) -> list[str]:
    """Return the lines about the whole message: what Ray stores, where, and the bytes of its fields if it has some."""
    held = sum(field["bytes"] for field in fields)
    name = module("describe").type_name(value)
    stored = format_bytes(measured.stored_bytes)
    seconds = format_milliseconds(measured.seconds)
    inside = format_bytes(measured.inband_bytes)
    outside = format_bytes(measured.stored_bytes - measured.inband_bytes)
    share = significant(measured.inband_percent, 2)
    buffers = "1 buffer" if measured.buffers == 1 else f"{measured.buffers} buffers"
    look = f"{outside} in {buffers}, which readers look at" if measured.buffers else "nothing"
    lines = [
        f"{name}: Ray stores {stored} of it, and serialises it in {seconds} (median of {PASSES}).",
        f"  in the pickle   {inside} ({share} %), which each reader copies",
        f"  outside of it   {look}",
    ]
    if held:
        others = describe_others(fields, held, measured.stored_bytes)
        lines.append(f"  in its fields   {format_bytes(held)}; {others}")
    return lines


def describe_others(fields: list[dict], held: int, stored: int) -> str:
    """Return what the stored bytes are to those of the fields, if the fields and what lies behind them bring most."""
    brought = sum(max(field["bytes"], field["storage_bytes"]) for field in fields)
    if brought < MAIN_SHARE * stored:
        return "the other bytes are of objects that are not listed"
    return f"Ray stores {significant(stored / held, 2)} times as much"


def describe_fields(fields: list[dict]) -> list[str]:
    """Return a table of the fields, the largest first."""
    if not fields:
        return [
            "No array, tensor, table, text or list of numbers is in it: it is pickled as Python objects."
        ]
    rows: list[tuple[str, ...]] = [("field", "held", "memory behind it", "type", "")]
    for field in fields[:MAX_FIELDS]:
        rows.append(describe_field(field))
    lines = align(rows)
    if len(fields) > MAX_FIELDS:
        lines.append(f"... and {len(fields) - MAX_FIELDS} smaller fields")
    return lines


def describe_field(field: dict) -> tuple[str, ...]:
    """Return the row of a field: name, bytes, bytes of the memory behind it, type, and what is special."""
    name = field["path"] or "(the message)"
    if field["count"] > 1:
        name += f" x {field['count']}"
    notes = []
    if field["storage_bytes"] > field["bytes"]:
        notes.append("a view")
    if not field["is_contiguous"]:
        notes.append("not contiguous")
    if field.get("one_value", 0.0) >= MAIN_SHARE:
        notes.append(f"{significant(100 * field['one_value'], 2)} % is one value")
    if field.get("object_columns"):
        notes.append(f"{field['object_columns']} columns of Python objects")
    kind = f"{field['type']} {field['dtype']}" if field["dtype"] != field["type"] else field["type"]
    behind = format_bytes(field["storage_bytes"])
    return name, format_bytes(field["bytes"]), behind, kind, ", ".join(notes)


def describe_alternatives(value: Any, measured: Measured) -> list[str]:
    """Return other ways to send a message that fit it, with what they took here, the fastest first."""
    event = {"bytes": measured.stored_bytes}
    results = module("alternatives").measure(value, event)
    now = results.pop("as it is", None)
    known = {name: result for name, result in results.items() if result}
    if not now or not known:
        return ["No other way to send it fits."]
    lines = textwrap.wrap(f"Sending and reading it now: {describe_times(now)}.", WIDTH)
    for name in sorted(known, key=lambda name: total_seconds(known[name])):
        result = known[name]
        change = ALTERNATIVE_TEXTS.get(name, name)
        convert = format_milliseconds(result["convert"])
        times = describe_times(result)
        text = f"{change}: {times}, after {convert} to convert it"
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines


def total_seconds(result: dict) -> float:
    """Return what sending and reading a message once takes, without the conversion."""
    seconds: float = result["serialise"] + result["deserialise"]
    return seconds


def describe_times(result: dict) -> str:
    send = format_milliseconds(result["serialise"])
    read = format_milliseconds(result["deserialise"]) if result["is_read"] else "not measured"
    share = significant(100 * result["inband_bytes"] / max(1, result["bytes"]), 2)
    return (
        f"pickle {send}, unpickle {read}, {format_bytes(result['bytes'])} ({share} % in the pickle)"
    )
