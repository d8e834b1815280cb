"""Assign the recorded spans to iterations, and write them as a file in the Chrome trace format."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from common.record import replace
from dataflow.flows.flow import DRIVER
from dataflow.records.schema import Edge, Run, Span

Recorded = tuple[int, str, float, float, int]  # thread, stage, start and end in seconds, faults: see recorder.spans
Interval = tuple[float, float]
Moment = tuple[int, float]  # thread and microseconds


def collect_spans(
    recorded: Mapping[str, Sequence[Recorded]], iterations: Sequence[Interval]
) -> tuple[list[Interval], list[Span]]:
    """Return `iterations_us` and `spans` of a Run, in microseconds from the start of the first iteration.

    Each span is cut to its iteration, its page faults in proportion.

    Args:
        recorded: recorder.spans of each process; actors in the driver's process have the driver's own list.
        iterations: start and end of each timed iteration in seconds (of each group, if iterations overlap).
    """

    def microseconds(seconds: float) -> float:
        return round((seconds - iterations[0][0]) * 1e6, 2)

    spans: list[Span] = []
    for process, recorded_spans in recorded.items():
        if process != DRIVER and recorded_spans is recorded[DRIVER]:
            continue
        threads = list(dict.fromkeys(thread for thread, *_ in recorded_spans))
        for number, (begin, finish) in enumerate(iterations):
            inside = [span for span in recorded_spans if span[3] > begin and span[2] < finish]
            for thread, stage, start, end, faults in sorted(inside, key=lambda span: span[2]):
                share = (min(end, finish) - max(start, begin)) / (end - start) if end > start else 1
                start, end = microseconds(max(start, begin)), microseconds(min(end, finish))
                spans.append((process, threads.index(thread), stage, number, start, end, round(share * faults)))
    return [(microseconds(start), microseconds(end)) for start, end in iterations], spans


def write_chrome(path: Path, run: Run, edges: Sequence[Edge]) -> None:
    """Write a traced run as a file that Perfetto opens: tracks per thread, slices per span, arrows per edge.

    Perfetto drops an arrow that begins outside any slice, so the query's begins with its iteration.
    Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    """
    processes = list(dict.fromkeys([DRIVER, *(edge.reader for edge in edges), *(span[0] for span in run.spans)]))
    tracks = sorted({(process, 0) for process in processes} | {span[:2] for span in run.spans})
    kind = "iteration" if len(run.iterations_us) == len(run.seconds) else "group"
    events: list[dict[str, Any]] = []

    def add(phase: str, process: str, thread: int, name: str, **details: Any) -> None:
        events.append({"ph": phase, "name": name, "pid": 1 + processes.index(process), "tid": thread, **details})

    for process, thread in tracks:
        if thread == 0:
            add("M", process, 0, "process_name", args={"name": process})
        name = f"{process}, thread {thread}" if thread else process
        add("M", process, thread, "thread_name", args={"name": name})
    for number, (start, end) in enumerate(run.iterations_us):
        add("X", DRIVER, 0, f"{kind} {number}", cat="iteration", ts=start, dur=end - start, args={"iteration": number})
    moments: dict[tuple[str, str, int], Moment] = {}  # the end of "make", and the start of the other stages
    for process, thread, stage, number, start, end, faults in run.spans:
        args = {"iteration": number, "page faults": faults}
        add("X", process, thread, stage, cat="stage", ts=start, dur=end - start, args=args)
        moments[stage, process, number] = thread, end if stage == "make" else start
    moments |= {("make", DRIVER, number): (0, start) for number, (start, _) in enumerate(run.iterations_us)}
    for index, (edge, number) in enumerate(product(edges, range(len(run.iterations_us)))):
        sent = moments.get(("make", edge.source, number))
        received = moments.get(("sequence number", edge.reader, number))
        if sent and received:
            for phase, process, (thread, moment) in (("s", edge.source, sent), ("f", edge.reader, received)):
                args = {"iteration": number}
                add(phase, process, thread, str(edge), bp="e", id=index, cat="edge", ts=moment, args=args)
    replace(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode() + b"\n")
