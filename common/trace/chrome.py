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
    """A named track for each thread of each process, a slice for each trip on the driver's, an arrow for each edge.

    Perfetto drops an arrow that begins outside any slice: the query's begins with its trip's.
    """
    readers, found = [edge.reader for edge in edges], [span[0] for span in run.spans]
    processes = list(dict.fromkeys([DRIVER, *readers, *found]))
    tracks = sorted({(process, 0) for process in processes} | {span[:2] for span in run.spans})
    events: list[dict[str, Any]] = []

    def add(phase: str, process: str, thread: int, name: str, **more: Any) -> None:
        where = {"pid": 1 + processes.index(process), "tid": thread}
        events.append({"ph": phase, "name": name} | where | more)

    for process, thread in tracks:
        if thread == 0:
            add("M", process, 0, "process_name", args={"name": process})
        name = f"{process}, thread {thread}" if thread else process
        add("M", process, thread, "thread_name", args={"name": name})
    for trip, (start, end) in enumerate(run.trips_us):
        name = f"trip {trip}" if len(run.trips_us) == len(run.seconds) else f"episode {trip}"
        add("X", DRIVER, 0, name, cat="trip", ts=start, dur=end - start, args={"trip": trip})
    for process, thread, stage, edge, trip, start, end in run.spans:
        args = {"edge": edge, "trip": trip}
        add("X", process, thread, stage, cat="stage", ts=start, dur=end - start, args=args)
    for index, (way, trip, sent, received) in enumerate(_arrows(run, edges)):
        for phase, process, (thread, moment) in (("s", way.source, sent), ("f", way.reader, received)):
            name = f"{way.source} -> {way.reader}"
            add(phase, process, thread, name, bp="e", id=index, cat="edge", ts=moment, args={"trip": trip})
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
