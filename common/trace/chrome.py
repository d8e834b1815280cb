"""A traced run as a file in the Chrome trace format, which Perfetto opens.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from common.flow.flow import DRIVER
from common.record.schema import Edge, Run


def write_chrome(path: Path, run: Run, edges: Sequence[Edge]) -> None:
    """A track for each thread of each process, and an arrow for each of the record's edges in each trip."""
    readers, found = [edge.reader for edge in edges], [span[0] for span in run.spans]
    processes = list(dict.fromkeys([DRIVER, *readers, *found]))
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 10 * index, "args": {"name": name}}
        for index, name in enumerate(processes)
    ]
    for process, thread, stage, busy_with, trip, start, end in run.spans:
        track = 10 * processes.index(process) + thread
        events.append({
            "ph": "X", "name": stage, "cat": "stage", "pid": 1, "tid": track, "ts": start, "dur": end - start,
            "args": {"edge": busy_with, "trip": trip},
        })  # fmt: skip
    for index, (edge, trip, sent, received) in enumerate(_arrows(run, edges)):
        for phase, process, (thread, moment) in (("s", edge.source, sent), ("f", edge.reader, received)):
            events.append({
                "ph": phase, "bp": "e", "id": index, "name": f"{edge.source} -> {edge.reader}", "cat": "edge",
                "pid": 1, "tid": 10 * processes.index(process) + thread, "ts": moment, "args": {"trip": trip},
            })  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n")


Moment = tuple[int, float]  # thread and microseconds


def _arrows(run: Run, edges: Sequence[Edge]) -> Iterator[tuple[Edge, int, Moment, Moment]]:
    """Of each edge and trip: where and when its payload was made, and where and when its reader held it."""
    made = {(p, trip): (thread, end) for p, thread, stage, _, trip, _, end in run.spans if stage == "make"}
    held = {(p, trip): (thread, start) for p, thread, stage, _, trip, start, _ in run.spans if stage == "stamp"}
    for edge in edges:
        for trip, (start, _end) in enumerate(run.trips_us):
            sent = (0, start) if edge.source == DRIVER else made.get((edge.source, trip))
            if sent and (edge.reader, trip) in held:
                yield edge, trip, sent, held[edge.reader, trip]
