# SPDX-License-Identifier: Apache-2.0
"""Draw the memory of the object store and of the processes over time for the page."""

from collections.abc import Sequence

from raymeter.memory.histories import History, find_histories, sum_histories
from raymeter.memory.processes import Sample
from raymeter.memory.stores import Spilling, find_spilling, sum_growth
from raymeter.profile.events import Store
from raymeter.profile.reader import Recording
from raymeter.report.line_chart import AREA, Line, TimeAxis, draw_lines
from raymeter.units import format_bytes

MAX_PROCESSES = 5  # with a line of their own; the others are summed up
MIN_TIMES = 2  # for a line


def draw_memory(recording: Recording, samples: Sequence[Sample]) -> str:
    """Return the section about memory; "" if nothing of it is known at two times, or nothing was in the store.

    `samples` are those of the processes. Both charts show the same time.
    """
    stores = recording.stores
    times = [store.time for store in stores]
    times += [sample.time for sample in samples]
    if not times:
        return ""
    axis = TimeAxis(min(times), max(times), recording.start)
    charts = draw_store(axis, stores) + draw_processes(axis, recording, samples)
    if not charts:
        return ""
    return f"<section><h2>Memory over time</h2>{charts}</section>"


def draw_store(axis: TimeAxis, stores: Sequence[Store]) -> str:
    """Return the chart of the object store; "" if there are too few samples of it, or nothing was in it."""
    spilled = sum_growth([store.spilled for store in stores])
    is_empty = not any(store.used for store in stores) and not any(spilled)
    if len(stores) < MIN_TIMES or is_empty:
        return ""
    times = [store.time for store in stores]
    used = [store.used for store in stores]
    lines = [Line("in the store", AREA, list(zip(times, used, strict=True)))]
    if any(spilled):
        written = [round(count) for count in spilled]
        points = list(zip(times, written, strict=True))
        lines.append(Line("spilled so far", "spilled", points))
    chart = draw_lines("Bytes in the object store over time", axis, lines)
    note = describe_store(find_spilling(stores), len(stores))
    return f'<h3>Memory of the object store</h3><p class="note">{note}</p>{chart}'


def describe_store(spilling: Spilling, samples: int) -> str:
    """Return the highest use, the size of the store, and what was written to disk."""
    used = format_bytes(spilling.peak_used)
    capacity = format_bytes(spilling.capacity)
    text = f"At most {used} of {capacity} were used (area)"
    if spilling.peak_used > spilling.capacity:
        text += ", because objects that do not fit are in files"
    if not spilling.spilled:
        return f"{text}; nothing was spilled to disk."
    text += f"; {format_bytes(spilling.spilled)} were spilled to disk (line)."
    if spilling.has_missed_peak:
        text += f" The {samples} samples show no full store."
    return text


def draw_processes(axis: TimeAxis, recording: Recording, samples: Sequence[Sample]) -> str:
    """Return the chart of the largest processes; "" without samples at two times."""
    times = {sample.time for sample in samples}
    if len(times) < MIN_TIMES:
        return ""
    drivers = {process.process for process in recording.drivers}
    histories = find_histories(samples, drivers)
    largest = histories[:MAX_PROCESSES]
    others = histories[MAX_PROCESSES:]
    lines = []
    for number, history in enumerate(largest):
        line = line_of(history, f"line-{number}")
        lines.append(line)
    if others:
        lines.append(Line(name_others(others), "others", sum_histories(others)))
    chart = draw_lines("Private memory of the processes over time", axis, lines)
    note = (
        "What a process shares with no other one, so without the object store and without files. "
        "0 s is when recording began."
    )
    return f'<h3>Private memory of the processes</h3><p class="note">{note}</p>{chart}'


def line_of(history: History, kind: str) -> Line:
    points = [(sample.time, sample.private) for sample in history.samples]
    return Line(f"{history.name} ({history.pid})", kind, points)


def name_others(others: Sequence[History]) -> str:
    return "1 other process" if len(others) == 1 else f"{len(others)} others together"
