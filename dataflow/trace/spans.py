# SPDX-License-Identifier: Apache-2.0
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
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from common.record import replace
from dataflow.catalogue.catalogue import read_files
from dataflow.flows.flow import DRIVER
from dataflow.records.schema import RecordedEdge, Run, Span

# What a stage can have, and a study can add to it.
TIMED_KEYS = ("methods", "functions", "gpu_functions")


def read_stages() -> dict[str, dict[str, Any]]:
    """Return the stages of stages.toml in their order, with what studies add; raise ValueError as add_to_stages."""
    path = Path(__file__).with_name("stages.toml")
    stages, *of_studies = read_files(path)
    for study in of_studies:
        add_to_stages(stages, study)
    return stages


def add_to_stages(stages: dict[str, dict[str, Any]], study: Mapping[str, Any]) -> None:
    """Add what stages.toml of a study has to the stages; raise ValueError for a stage or key that does not exist."""
    for name, added in study.items():
        if name not in stages:
            known_names = ", ".join(stages)
            raise ValueError(f"stages.toml of a study: there is no stage {name}: use {known_names}")
        stage = stages[name]
        for key, timed in added.items():
            if key not in TIMED_KEYS:
                known_keys = ", ".join(TIMED_KEYS)
                raise ValueError(
                    f"stages.toml of a study: stage {name} has {key}: use {known_keys}"
                )
            known = stage.get(key, [])
            stage[key] = known + timed


STAGES = read_stages()

# Thread, stage, start and end in seconds, page faults outside inner spans.
Recorded = tuple[int, str, float, float, int]
Interval = tuple[float, float]
Track = tuple[str, int]  # process and thread
StageRun = tuple[str, str, int]  # stage, process and iteration
Moment = tuple[int, float]  # thread and microseconds

recorded: list[Recorded] = []  # by this process
wrapped_functions: list[str] = []  # of libraries, in this process
# .faults: for each open span of this thread, the page faults of the spans inside it
open_spans = threading.local()


def install(endpoint: Any) -> None:
    """Wrap the methods of an endpoint and, once per process, the functions of the imported libraries."""
    _wrap_endpoint(endpoint)
    if not wrapped_functions:
        _wrap_libraries(has_gpu=endpoint.device.type == "cuda")


def _wrap_endpoint(endpoint: Any) -> None:
    """Wrap the methods that an endpoint has, what its outboxes convert with, and the methods that its parts name."""
    for stage, of_stage in STAGES.items():
        for name in of_stage.get("methods", ()):
            if hasattr(endpoint, name):  # the driver has no compute
                method = getattr(endpoint, name)
                setattr(endpoint, name, _timed(method, stage))
    for outbox in endpoint.outboxes.values():
        if outbox.convert:
            outbox.convert = _timed(outbox.convert, "pack")
    for part in endpoint.parts:
        for name, stage in part.traced.items():
            method = getattr(part, name)
            setattr(part, name, _timed(method, stage))


def _wrap_libraries(has_gpu: bool) -> None:
    """Wrap the functions of stages.toml in their libraries. Those of libraries that are not imported are left out."""
    kinds = ["functions", "gpu_functions"] if has_gpu else ["functions"]
    for stage, kind in product(STAGES, kinds):
        for function in STAGES[stage].get(kind, ()):
            module, _, _ = function.partition(":")
            library, _, _ = module.partition(".")
            if library not in sys.modules:
                continue
            owner, name = find_owner(function)
            original = getattr(owner, name)
            setattr(owner, name, _timed(original, stage))
            wrapped_functions.append(function)


def find_owner(function: str) -> tuple[Any, str]:
    """Return the module or class that holds a function, and the function's name there."""
    module, _, path = function.partition(":")
    parent, _, name = path.rpartition(".")
    return resolve_name(f"{module}:{parent}"), name


def _timed(function: Any, stage: str) -> Any:
    """Return the function wrapped so that each call, also one that raises, adds a span of this stage to `recorded`.

    Its page faults are those of all threads of this process meanwhile, without those in spans of wrapped functions
    that it calls on its own thread.
    """

    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        inner_faults = open_spans.__dict__.setdefault("faults", [])
        inner_faults.append(0)
        start = time.perf_counter()
        faults_before = count_faults()
        try:
            return function(*arguments, **options)
        finally:
            faults = count_faults() - faults_before
            end = time.perf_counter()
            own_faults = faults - inner_faults.pop()
            recorded.append((threading.get_ident(), stage, start, end, own_faults))
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

    Each span is cut to its iteration, its page faults in proportion. One that lies in several has a part in each, and
    one that lies in none is left out. `by_process` has `recorded` of each process, on the driver's clock. Actors whose
    list is the driver's own run in its process, and their spans count once. `iterations` has start and end of each
    timed iteration in seconds, or of each group if iterations overlap; there is at least one.
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

    An earlier file is replaced in one step. Raise RecordError if it cannot be written.

    Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    """
    processes = [DRIVER]
    processes += [edge.reader for edge in edges]
    processes += [span[0] for span in run.spans]
    trace = ChromeTrace(processes)
    trace.add_tracks(run)
    trace.add_iterations(run)
    trace.add_stages(run)
    trace.add_arrows(run, edges)
    content = {"traceEvents": trace.events, "displayTimeUnit": "ms"}
    replace(path, json.dumps(content).encode() + b"\n")


class ChromeTrace:
    """Collect the events of a trace file. Their times are in microseconds."""

    def __init__(self, processes: Iterable[str]) -> None:
        # Process -> its number in the file, from 1.
        self.process_ids: dict[str, int] = {}
        for process in dict.fromkeys(processes):
            self.process_ids[process] = len(self.process_ids) + 1
        self.events: list[dict[str, Any]] = []

    def add(self, phase: str, track: Track, name: str, details: dict[str, Any]) -> None:
        """Add an event: phase "M" is the name of a track, "X" a slice, "s" and "f" the ends of an arrow."""
        process, thread = track
        event = {
            "ph": phase,
            "name": name,
            "pid": self.process_ids[process],
            "tid": thread,
        }
        self.events.append(event | details)

    def add_tracks(self, run: Run) -> None:
        """Add the names of all processes, and of their threads."""
        main_threads = {(process, 0) for process in self.process_ids}
        traced = {span[:2] for span in run.spans}
        tracks = main_threads | traced
        for track in sorted(tracks):
            process, thread = track
            name = f"{process}, thread {thread}" if thread else process
            self.add("M", track, "process_name", {"args": {"name": process}})
            self.add("M", track, "thread_name", {"args": {"name": name}})

    def add_iterations(self, run: Run) -> None:
        is_grouped = len(run.iterations_us) != len(run.seconds)
        kind = "group" if is_grouped else "iteration"
        for number, (start, end) in enumerate(run.iterations_us):
            details = {
                "cat": "iteration",
                "ts": start,
                "dur": end - start,
                "args": {"iteration": number},
            }
            self.add("X", (DRIVER, 0), f"{kind} {number}", details)

    def add_stages(self, run: Run) -> None:
        for process, thread, stage, number, start, end, faults in run.spans:
            details = {
                "cat": "stage",
                "ts": start,
                "dur": end - start,
                "args": {"iteration": number, "page faults": faults},
            }
            self.add("X", (process, thread), stage, details)

    def add_arrows(self, run: Run, edges: Sequence[RecordedEdge]) -> None:
        """Add an arrow per message, from the end of "make" to the start of "sequence number".

        Messages of which one of these stages was not recorded have no arrow.
        """
        moments = find_moments(run)
        iterations = range(len(run.iterations_us))
        for index, (edge, number) in enumerate(product(edges, iterations)):
            sent = moments.get(("make", edge.source, number))
            received = moments.get(("sequence number", edge.reader, number))
            if not sent or not received:
                continue
            details = {
                "bp": "e",
                "id": index,
                "cat": "edge",
                "args": {"iteration": number},
            }
            sent_thread, sent_at = sent
            thread, received_at = received
            name = str(edge)
            self.add("s", (edge.source, sent_thread), name, details | {"ts": sent_at})
            self.add("f", (edge.reader, thread), name, details | {"ts": received_at})


def find_moments(run: Run) -> dict[StageRun, Moment]:
    """Return when each stage ended, if it is "make", or started: its last span, if an iteration has several.

    Perfetto drops an arrow that begins outside any slice, so the query's begins with its iteration.
    """
    moments: dict[StageRun, Moment] = {}
    for process, thread, stage, number, start, end, _ in run.spans:
        is_made = stage == "make"
        at = end if is_made else start
        place = (stage, process, number)
        moments[place] = (thread, at)
    for number, (start, _) in enumerate(run.iterations_us):
        place = ("make", DRIVER, number)
        moments[place] = (0, start)
    return moments
