"""Record spans, which say when each process did what, assign them to iterations, and write them as a Chrome trace file.

--trace wraps the functions of stages.toml; without --trace nothing is wrapped. The clock is time.perf_counter: on Linux
CLOCK_MONOTONIC, which all processes of a machine share.
"""

import functools
import json
import resource
import sys
import threading
import time
import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from common.record import replace
from dataflow.flows.flow import DRIVER
from dataflow.records.schema import RecordedEdge, Run, Span

STAGES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("stages.toml").read_text(encoding="utf-8")
)

Recorded = tuple[
    int, str, float, float, int
]  # thread, stage, start and end in seconds, faults outside inner spans
Interval = tuple[float, float]

installed = False
recorded: list[Recorded] = []  # by this process
open_spans = (
    threading.local()
)  # .faults: for each open span of this thread, the page faults of the spans inside it


def install(endpoint: Any) -> None:
    """Wrap the methods of an endpoint and, once per process, the functions of the imported libraries."""
    global installed
    for stage, of_stage in STAGES.items():
        for name in of_stage.get("methods", ()):
            if hasattr(endpoint, name):  # the driver has no compute
                setattr(endpoint, name, _timed(getattr(endpoint, name), stage))
    for outbox in endpoint.outboxes.values():
        if outbox.convert:
            outbox.convert = _timed(outbox.convert, "pack")
    for part in endpoint.parts:
        for name, stage in part.traced.items():
            setattr(part, name, _timed(getattr(part, name), stage))
    if installed:
        return
    installed = True
    kinds = ("functions", "gpu_functions") if endpoint.device.type == "cuda" else ("functions",)
    for stage, kind in product(STAGES, kinds):
        for function in STAGES[stage].get(kind, ()):
            if function.partition(":")[0].partition(".")[0] in sys.modules:
                owner, name = find_owner(function)
                setattr(owner, name, _timed(getattr(owner, name), stage))


def find_owner(function: str) -> tuple[Any, str]:
    """Return the module or class that holds a function, and the function's name there."""
    module, _, path = function.partition(":")
    parent, _, name = path.rpartition(".")
    return resolve_name(f"{module}:{parent}"), name


def _timed(function: Any, stage: str) -> Any:
    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        inner_faults = open_spans.__dict__.setdefault("faults", [])
        inner_faults.append(0)
        start, faults_before = time.perf_counter(), count_faults()
        try:
            return function(*arguments, **options)
        finally:
            faults = count_faults() - faults_before
            recorded.append(
                (
                    threading.get_ident(),
                    stage,
                    start,
                    time.perf_counter(),
                    faults - inner_faults.pop(),
                )
            )
            if inner_faults:
                inner_faults[-1] += faults

    return timed


def count_faults() -> int:
    """Return the minor page faults of this process so far: of all threads, because Ray copies with several."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def collect_spans(
    by_process: Mapping[str, Sequence[Recorded]], iterations: Sequence[Interval]
) -> tuple[list[Interval], list[Span]]:
    """Return `iterations_us` and `spans` of a Run, in microseconds from the start of the first iteration.

    Each span is cut to its iteration, its page faults in proportion. `by_process` has `recorded` of each process.
    Actors in the driver's process have the driver's own list. `iterations` has start and end of each timed iteration
    in seconds, or of each group if iterations overlap.
    """

    spans: list[Span] = []
    for process, recorded_spans in by_process.items():
        if process != DRIVER and recorded_spans is by_process[DRIVER]:
            continue
        threads = list(dict.fromkeys(thread for thread, *_ in recorded_spans))
        for number, inside in enumerate(_assign_to_iterations(recorded_spans, iterations)):
            for span in inside:
                thread = threads.index(span[0])
                spans.append(_cut_span(span, process, thread, number, iterations))
    origin = iterations[0][0]
    intervals = [
        (_microseconds(start - origin), _microseconds(end - origin)) for start, end in iterations
    ]
    return intervals, spans


def _assign_to_iterations(
    recorded_spans: Sequence[Recorded], iterations: Sequence[Interval]
) -> list[list[Recorded]]:
    """Return the spans of each iteration that they have a part in, in the order of their starts."""
    begins = [begin for begin, _ in iterations]
    ends = [end for _, end in iterations]
    inside: list[list[Recorded]] = [[] for _ in iterations]
    for span in sorted(recorded_spans, key=lambda span: span[2]):
        _, _, start, end, _ = span
        first = bisect_right(ends, start)
        stop = bisect_left(begins, end)
        for number in range(first, stop):
            inside[number].append(span)
    return inside


def _cut_span(
    span: Recorded, process: str, thread: int, number: int, iterations: Sequence[Interval]
) -> Span:
    """Return the part of a span that lies in the iteration with this number, with its share of the page faults."""
    _, stage, start, end, faults = span
    begin, finish = iterations[number]
    cut_start = max(start, begin)
    cut_end = min(end, finish)
    share = (cut_end - cut_start) / (end - start) if end > start else 1.0
    origin = iterations[0][0]
    return (
        process,
        thread,
        stage,
        number,
        _microseconds(cut_start - origin),
        _microseconds(cut_end - origin),
        round(share * faults),
    )


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 2)


def write_chrome(path: Path, run: Run, edges: Sequence[RecordedEdge]) -> None:
    """Write a traced run as a file that Perfetto opens: tracks per thread, slices per span, arrows per edge.

    Perfetto drops an arrow that begins outside any slice, so the query's begins with its iteration.
    Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    """
    processes = list(
        dict.fromkeys([DRIVER, *(edge.reader for edge in edges), *(span[0] for span in run.spans)])
    )
    tracks = sorted({(process, 0) for process in processes} | {span[:2] for span in run.spans})
    kind = "iteration" if len(run.iterations_us) == len(run.seconds) else "group"
    events: list[dict[str, Any]] = []

    def add(phase: str, process: str, thread: int, name: str, **details: Any) -> None:
        events.append(
            {
                "ph": phase,
                "name": name,
                "pid": 1 + processes.index(process),
                "tid": thread,
                **details,
            }
        )

    for process, thread in tracks:
        add("M", process, thread, "process_name", args={"name": process})
        name = f"{process}, thread {thread}" if thread else process
        add("M", process, thread, "thread_name", args={"name": name})
    for number, (start, end) in enumerate(run.iterations_us):
        add(
            "X",
            DRIVER,
            0,
            f"{kind} {number}",
            cat="iteration",
            ts=start,
            dur=end - start,
            args={"iteration": number},
        )
    moments: dict[
        tuple[str, str, int], tuple[int, float]
    ] = {}  # thread and µs: the end of "make", the other starts
    for process, thread, stage, number, start, end, faults in run.spans:
        args = {"iteration": number, "page faults": faults}
        add("X", process, thread, stage, cat="stage", ts=start, dur=end - start, args=args)
        moments[stage, process, number] = thread, end if stage == "make" else start
    moments |= {
        ("make", DRIVER, number): (0, start) for number, (start, _) in enumerate(run.iterations_us)
    }
    for index, (edge, number) in enumerate(product(edges, range(len(run.iterations_us)))):
        sent = moments.get(("make", edge.source, number))
        received = moments.get(("sequence number", edge.reader, number))
        if sent and received:
            for phase, process, (thread, moment) in (
                ("s", edge.source, sent),
                ("f", edge.reader, received),
            ):
                args = {"iteration": number}
                add(
                    phase,
                    process,
                    thread,
                    str(edge),
                    bp="e",
                    id=index,
                    cat="edge",
                    ts=moment,
                    args=args,
                )
    replace(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode() + b"\n")
