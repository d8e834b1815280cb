"""Assign the recorded spans to iterations and edges, and write them as a file in the Chrome trace format."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from common.record import replace
from dataflow.flows.flow import DRIVER, PROXY, Flow
from dataflow.records.schema import Edge, Run, Span

Recorded = tuple[int, str, float, float, int]  # thread, stage, start and end in seconds, faults: see recorder.spans
Interval = tuple[float, float]
Moment = tuple[int, float]  # thread and microseconds

OUTGOING = ("make", "pack", "device to host", "submit", "serialise", "write")
# Incoming until the actor has its inputs, and outgoing after that. The driver sends first, so there it is incoming.
INCOMING_THEN_OUTGOING = ("transfer", "loop")


def collect_spans(
    recorded: Mapping[str, Sequence[Recorded]], iterations: Sequence[Interval], flow: Flow, actors: Mapping[str, str]
) -> tuple[list[Interval], list[Span]]:
    """Return `iterations_us` and `spans` of a Run, in microseconds from the start of the first iteration.

    `recorded` has recorder.spans of each process; actors in the driver's process have the driver's own list. Each span
    is cut to its iteration, its page faults in proportion. It names the edge that the process worked on at that stage,
    or "-> reader" or "sender ->" if there are several. The proxy actor's edges are those of the driver.

    Args:
        iterations: start and end of each timed iteration in seconds (of each group, if iterations overlap).
        actors: process -> actor, unless their names are equal.
    """

    def microseconds(seconds: float) -> float:
        return round((seconds - iterations[0][0]) * 1e6, 2)

    driver_spans = recorded[DRIVER]
    in_one_process = any(spans is driver_spans for process, spans in recorded.items() if process != DRIVER)
    spans: list[Span] = []
    for process, recorded_spans in recorded.items():
        if in_one_process and process != DRIVER:
            continue
        actor = DRIVER if process == PROXY else actors.get(process, process)
        threads = list(dict.fromkeys(thread for thread, *_ in recorded_spans))
        for number, (begin, finish) in enumerate(iterations):
            inside = [span for span in recorded_spans if span[3] > begin and span[2] < finish]
            held = max((span[3] for span in inside if span[1] == "sequence number"), default=begin)
            incoming = iter(flow.edges_to_actor(actor))
            for thread, stage, start, end, faults in sorted(inside, key=lambda span: span[2]):
                outgoing = stage in OUTGOING or (stage in INCOMING_THEN_OUTGOING and actor != DRIVER and end > held)
                edges = flow.edges_from_actor(actor) if outgoing else flow.edges_to_actor(actor)
                edge = f"{actor} ->" if outgoing else f"-> {actor}"
                if in_one_process:
                    edge = "in one process"
                elif len(edges) == 1:
                    edge = str(edges[0])
                elif stage == "deserialise":  # one span per edge, in the order of the edges
                    edge = str(next(incoming, edge))
                share = (min(end, finish) - max(start, begin)) / (end - start) if end > start else 1
                start, end = microseconds(max(start, begin)), microseconds(min(end, finish))
                spans.append((process, threads.index(thread), stage, edge, number, start, end, round(share * faults)))
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
    for process, thread, stage, name, number, start, end, faults in run.spans:
        args: dict[str, Any] = {"edge": name, "iteration": number, "page faults": faults}
        add("X", process, thread, stage, cat="stage", ts=start, dur=end - start, args=args)
    made, read = dict[tuple[str, int], Moment](), dict[tuple[str, int], Moment]()
    for process, thread, stage, _, number, start, end, _ in run.spans:
        if stage == "make":
            made[process, number] = thread, end
        elif stage == "sequence number":
            read[process, number] = thread, start
    for index, (edge, (number, (start, _))) in enumerate(product(edges, enumerate(run.iterations_us))):
        sent = (0, start) if edge.source == DRIVER else made.get((edge.source, number))
        received = read.get((edge.reader, number))
        if sent and received:
            for phase, process, (thread, moment) in (("s", edge.source, sent), ("f", edge.reader, received)):
                args = {"iteration": number}
                add(phase, process, thread, str(edge), bp="e", id=index, cat="edge", ts=moment, args=args)
    replace(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode() + b"\n")
