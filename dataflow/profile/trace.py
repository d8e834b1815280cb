"""Write the events of a profile for ui.perfetto.dev, and its messages as a drawing (SVG)."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from dataflow.profile.events import Event
from dataflow.profile.messages import Message
from dataflow.units import format_bytes

MAX_DRAWN = 12  # messages
COLUMN_WIDTH = 400  # pixels
ROW_HEIGHT = 45
HEADER_HEIGHT = 20
LINE_HEIGHT = 6  # from the label of an arrow to its line
RIGHT_HEAD = "l-6 -4m6 4l-6 4"  # of an arrow
LEFT_HEAD = "l6 -4m-6 4l6 4"
ARROW = '<path d="M{} {}H{}{}" stroke="black" fill="none"/>'
TEXT = '<text x="{}" y="{}">{}</text>'
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-size="12" text-anchor="middle">{}</svg>'


def write_trace(path: Path, events: Sequence[Event]) -> None:
    """Write one track per process, and an arrow from each message to its readers."""
    lines: list[dict[str, Any]] = []
    for event in events:
        track = make_track(event)
        label = {
            "ph": "M",
            "name": "process_name",
            "args": {"name": event.class_name},
        }
        lines.append(track | label)
        lines.append(track | make_span(event))
        for reader in event.readers:
            begin = {
                "ph": "s",
                "cat": "message",
                "id": len(lines),
            }
            end = begin | {
                "ph": "f",
                "bp": "e",
                "name": event.place,
            }
            lines.append(track | begin)
            lines.append(make_track(reader) | end)
    path.write_text(json.dumps({"traceEvents": lines}))


def make_track(event: Event) -> dict[str, Any]:
    """Return where and when an event is in the trace. Times are microseconds."""
    _, _, number = event.process.rpartition("-")
    return {
        "pid": int(number),
        "tid": 0,
        "ts": event.start * 1e6,
        "name": event.place,
    }


def make_span(event: Event) -> dict[str, Any]:
    """Return the time of serialisation or deserialisation, with what the message is."""
    shown = {
        "stored": event.stored,
        "faults": event.faults,
        "how": event.how,
        "line": event.line,
    }
    return {
        "ph": "X",
        "dur": event.seconds * 1e6,
        "cat": event.side,
        "args": shown,
    }


def write_drawing(path: Path, messages: Sequence[Message]) -> None:
    """Draw a column per class of actors, and an arrow per message with its bytes and its time per step."""
    ends: list[tuple[Message, str]] = []
    for message in messages[:MAX_DRAWN]:
        ends += [(message, reader) for reader in message.readers]
    centres: dict[str, int] = {}  # of the columns
    for message, reader in ends:
        for place in (message.place, reader):
            new = COLUMN_WIDTH // 2 + COLUMN_WIDTH * len(centres)
            centres.setdefault(class_of(place), new)
    parts = []
    for name, centre in centres.items():
        parts.append(TEXT.format(centre, HEADER_HEIGHT, escape(name)))
    bottom = HEADER_HEIGHT
    for message, reader in ends:
        bottom += ROW_HEIGHT
        left = centres[class_of(message.place)]
        right = centres[class_of(reader)]
        middle = (left + right) / 2
        label = describe_arrow(message, reader)
        parts.append(draw_arrow(left, right, bottom + LINE_HEIGHT))
        parts.append(TEXT.format(middle, bottom, escape(label)))
    width = COLUMN_WIDTH * len(centres)
    height = bottom + ROW_HEIGHT
    drawing = SVG.format(width, height, "\n".join(parts))
    path.write_text(drawing)


def class_of(place: str) -> str:
    """Return the class of an actor's method."""
    return place.partition(".")[0]


def draw_arrow(left: int, right: int, height: int) -> str:
    """Return a horizontal line with a head at its end."""
    head = RIGHT_HEAD if left <= right else LEFT_HEAD
    return ARROW.format(left, height, right, head)


def describe_arrow(message: Message, reader: str) -> str:
    """Return the label of an arrow."""
    size = format_bytes(message.stored_bytes)
    milliseconds = message.seconds_per_step * 1e3
    return f"{message.place} to {reader}: {size}, {milliseconds:.3g} ms per step"
