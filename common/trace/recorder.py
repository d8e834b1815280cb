"""When what was done, in each process: --trace wraps the functions below, and nothing is wrapped without it.

The clock is time.perf_counter, on Linux CLOCK_MONOTONIC, which all processes of a machine share.
"""

import functools
import importlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from common.flow.flow import DRIVER, Flow

# Of each participant itself: Ray gives actors' classes methods of their own, so the class is not the place.
OWN_POINTS = (("emit", "make"), ("receive", "stamp"), ("copy_out", "copy"))
# module, function, stage. A stage inside another one counts as itself alone: writing an object to the
# store, say, is put_object without the serialising in it. `wait` is the one stage in which nothing is
# done: messages, scheduling and wake-ups, and what Ray's C++ does where Python cannot see it. `transfer` is a
# library's send or receive, which waits for its other end as well.
POINTS = (
    ("common.runtime.devices", "synchronise", "synchronise"),
    ("ray._private.serialization", "SerializationContext.serialize", "serialise"),
    ("ray._private.worker", "Worker.put_object", "write"),
    ("ray._private.worker", "Worker.get_objects", "wait"),
    ("ray._private.worker", "Worker.deserialize_objects", "deserialise"),
    ("ray.actor", "ActorMethod._remote", "submit"),
    ("ray.dag.compiled_dag_node", "CompiledDAG.execute", "submit"),
    ("ray.dag.compiled_dag_node", "ExecutableTask.exec_operation", "loop"),
    ("ray.experimental.channel.shared_memory_channel", "Channel.write", "write"),
    ("ray.experimental.rdt.rdt_manager", "RDTManager.get_rdt_objects", "wait"),
    ("ray.experimental.rdt.rdt_manager", "RDTManager.fetch_and_get_rdt_objects", "wait"),
    ("ray.experimental.rdt.rdt_manager", "RDTManager.trigger_out_of_band_tensor_transfer", "submit"),
    ("ray.experimental.rdt.nixl_tensor_transport", "NixlTensorTransport.extract_tensor_transport_metadata", "write"),
    ("ray.experimental.rdt.nixl_tensor_transport", "NixlTensorTransport.fetch_multiple_tensors", "copy"),
    ("ray.experimental.rdt.nixl_tensor_transport", "NixlTensorTransport.wait_fetch_complete", "copy"),
    ("ray.experimental.rdt.nixl_tensor_transport", "NixlTensorTransport.actor_has_tensor_transport", "submit"),
    ("torch.distributed", "isend", "transfer"),
    ("torch.distributed", "Work.wait", "transfer"),
    ("torch.distributed", "recv", "transfer"),
    ("multiprocessing.queues", "SimpleQueue.put", "write"),
    ("multiprocessing.queues", "SimpleQueue.get", "wait"),
    ("multiprocessing.queues", "_ForkingPickler.loads", "deserialise"),
    ("torch", "Tensor.copy_", "copy"),
)
ON_GPUS = (("torch", "Tensor.cpu", "device to host"), ("torch", "Tensor.to", "host to device"))

OUTGOING = ("make", "device to host", "submit", "serialise", "write")
EITHER = ("transfer", "loop")  # a role's outgoing ones come after it holds its inputs; the driver's count as incoming

installed = False
spans: list[tuple[int, str, float, float]] = []  # thread, stage, start and end in seconds of the clock


def install(participant: Any) -> None:
    """Wrap the participant's own points, and those of the libraries that its process uses."""
    for name, stage in OWN_POINTS:
        setattr(participant, name, _timed(getattr(participant, name), stage))
    install_libraries(participant.device.type)


def install_libraries(device: str) -> None:
    """Wrap the libraries' points; once, though several roles may live in a process."""
    global installed
    if installed:
        return
    installed = True
    for module, path, stage in POINTS + (ON_GPUS if device == "cuda" else ()):
        if module.partition(".")[0] in sys.modules:
            owner: Any = importlib.import_module(module)
            *parents, name = path.split(".")
            for parent in parents:
                owner = getattr(owner, parent)
            setattr(owner, name, _timed(getattr(owner, name), stage))


def _timed(function: Any, stage: str) -> Any:
    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            spans.append((threading.get_ident(), stage, start, time.perf_counter()))

    return timed


def collect(found: dict[str, list], trips: list[tuple[float, float]], flow: Flow) -> dict[str, Any]:
    """The record's fields: the trips' times, and what every process did in them, in microseconds.

    Args:
        found: `spans` of each process, by its name.
        trips: start and end of each timed trip.

    Returns:
        trips_us, a [start, end] for each trip counted from the first one's start, and spans, each
        [process, thread, stage, edge, trip, start, end] with threads and trips numbered from 0. The edge is
        the one that the process was busy with, by the stage; "-> reader" or "sender ->" where it has several.
    """
    origin = trips[0][0]

    def us(seconds: float) -> float:
        return round((seconds - origin) * 1e6, 2)

    rows = []
    in_one_process = any(own is found[DRIVER] for process, own in found.items() if process != DRIVER)
    for process, own in {DRIVER: found[DRIVER]}.items() if in_one_process else found.items():
        threads = list(dict.fromkeys(thread for thread, *_ in own))
        for number, (trip_start, trip_end) in enumerate(trips):
            inside = [span for span in own if span[3] > trip_start and span[2] < trip_end]
            held = max((span[3] for span in inside if span[1] == "stamp"), default=trip_start)
            incoming = iter(flow.edges_to(process))
            for thread, stage, start, end in sorted(inside, key=lambda span: span[2]):
                outgoing = stage in OUTGOING or (process != DRIVER and stage in EITHER and end > held)
                edge = "in one process" if in_one_process else _edge(process, outgoing, flow)
                if not outgoing and stage == "deserialise" and not in_one_process:
                    edge = str(next(incoming, edge))
                start, end = max(start, trip_start), min(end, trip_end)
                rows.append([process, threads.index(thread), stage, edge, number, us(start), us(end)])
    return {"trips_us": [[us(start), us(end)] for start, end in trips], "spans": rows}


def _edge(process: str, outgoing: bool, flow: Flow) -> str:
    edges = flow.edges_from(process) if outgoing else flow.edges_to(process)
    if len(edges) == 1:
        return str(edges[0])
    return f"{process} ->" if outgoing else f"-> {process}"


def write_chrome(path: Path, case: dict[str, Any]) -> None:
    """The Chrome trace format, which Perfetto opens: a track for each role, an arrow for each edge.

    https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    """
    processes = list(dict.fromkeys([DRIVER, *(edge["to"] for edge in case["edges"])]))
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 10 * index, "args": {"name": name}}
        for index, name in enumerate(processes)
    ]
    for process, thread, stage, edge, trip, start, end in case["spans"]:
        track = 10 * processes.index(process) + thread
        events.append({
            "ph": "X", "name": stage, "cat": "stage", "pid": 1, "tid": track, "ts": start, "dur": end - start,
            "args": {"edge": edge, "trip": trip},
        })  # fmt: skip
    for index, (edge, trip, sent, received) in enumerate(_arrows(case)):
        ends = (("s", edge["from"], sent), ("f", edge["to"], received))
        for phase, process, (thread, moment) in ends:
            events.append({
                "ph": phase, "bp": "e", "id": index, "name": f"{edge['from']} -> {edge['to']}", "cat": "edge",
                "pid": 1, "tid": 10 * processes.index(process) + thread, "ts": moment, "args": {"trip": trip},
            })  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n")


def _arrows(case: dict[str, Any]) -> list[tuple[dict[str, Any], int, tuple[int, float], tuple[int, float]]]:
    """Of each edge and trip: where and when its payload was made, and where and when its reader held it."""
    made = {(p, trip): (thread, end) for p, thread, stage, _, trip, _, end in case["spans"] if stage == "make"}
    held = {(p, trip): (thread, start) for p, thread, stage, _, trip, start, _ in case["spans"] if stage == "stamp"}
    found = []
    for edge in case["edges"]:
        for trip, (start, _end) in enumerate(case["trips_us"]):
            sent = (0, start) if edge["from"] == DRIVER else made.get((edge["from"], trip))
            if sent and (edge["to"], trip) in held:
                found.append((edge, trip, sent, held[edge["to"], trip]))
    return found
