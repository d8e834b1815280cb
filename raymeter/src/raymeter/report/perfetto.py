# SPDX-License-Identifier: Apache-2.0
"""Write a trace that ui.perfetto.dev and chrome://tracing show.

The format is the one of the document "Trace Event Format" of Chrome: times are microseconds.
"""

import json
from pathlib import Path
from typing import Any

from raymeter.advice import Profile
from raymeter.report.store_samples import StoreSample, store_samples
from raymeter.report.timeline import Arrow, Lane, Row, Span, make_timeline
from raymeter.report.words import relative

MICROSECONDS = 1e6
STORE_PROCESS = 0  # the number of the track of memory


def write(profile: Profile, path: Path) -> None:
    """Write all tasks, calls, waits and messages of a program, and the memory of the object store."""
    recording = profile.program.recording
    timeline = make_timeline(profile.program)
    trace = Trace(recording.start)
    for number, lane in enumerate(timeline.lanes(), 1):
        trace.add_lane(number, lane)
    for number, arrow in enumerate(timeline.arrows):
        trace.add_arrow(number, arrow)
    for sample in store_samples(recording):
        trace.add_sample(sample)
    text = json.dumps({"traceEvents": trace.events, "displayTimeUnit": "ms"})
    path.write_text(text, encoding="utf-8")


class Trace:
    """The events of a trace. Processes and rows of spans have numbers."""

    def __init__(self, begin: float) -> None:
        self.begin = begin
        self.events: list[dict[str, Any]] = []
        self.places: dict[int, dict[str, int]] = {}  # process and row of each span, by its id

    def time(self, seconds: float) -> float:
        return to_microseconds(seconds - self.begin)

    def add_lane(self, process: int, lane: Lane) -> None:
        """Add a process with its rows."""
        place = {"pid": process, "tid": 0}
        name = f"{lane.name} ({lane.process})"
        self.events.append(make_label("process_name", place, name=name))
        self.events.append(make_label("process_sort_index", place, sort_index=process))
        for number, row in enumerate(lane.rows, 1):
            self.add_row({"pid": process, "tid": number}, row)

    def add_row(self, place: dict[str, int], row: Row) -> None:
        """Add a row with its spans. `place` is its process ("pid") and its number there ("tid"), which sorts it."""
        self.events.append(make_label("thread_name", place, name=row.name))
        self.events.append(make_label("thread_sort_index", place, sort_index=place["tid"]))
        for span in row.spans:
            self.places[id(span)] = place  # for the ends of arrows
            self.add_span(place, span)

    def add_span(self, place: dict[str, int], span: Span) -> None:
        """Add a span to its row, with its times in microseconds after the start of the program."""
        details: dict[str, Any] = {}
        if span.line:
            details["line"] = relative(span.line)
        if span.bytes:
            details["bytes"] = span.bytes
        event = {
            "ph": "X",
            "name": span.name,
            "cat": span.kind,
            "ts": self.time(span.start),
            "dur": to_microseconds(span.end - span.start),
            "args": details,
        }
        self.events.append(place | event)

    def add_arrow(self, number: int, arrow: Arrow) -> None:
        """Add a message: an arrow from the span that sends it to the one that reads it."""
        self.add_end("s", number, arrow.source)
        self.add_end("f", number, arrow.target)

    def add_end(self, phase: str, number: int, span: Span) -> None:
        """Add one end of an arrow, "s" or "f", in the middle of its span, which must have been added before."""
        event = {
            "ph": phase,
            "name": "message",
            "cat": "message",
            "id": number,
            "ts": self.time((span.start + span.end) / 2),
            "bp": "e",
        }
        self.events.append(self.places[id(span)] | event)

    def add_sample(self, sample: StoreSample) -> None:
        """Add the bytes in the object store at one time."""
        event = {
            "ph": "C",
            "pid": STORE_PROCESS,
            "name": "object store",
            "ts": self.time(sample.time),
            "args": {"used": sample.used, "spilled": sample.spilled},
        }
        self.events.append(event)


def make_label(label: str, place: dict[str, int], **values: Any) -> dict[str, Any]:
    return {"ph": "M", "name": label, "args": values, **place}


def to_microseconds(seconds: float) -> float:
    return round(MICROSECONDS * seconds, 1)
