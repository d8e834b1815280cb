"""Which trip and which edge a span belongs to: from what each process recorded to what a record holds."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from common.flow.flow import DRIVER, TRAINER, Flow

OUTGOING = ("make", "pack", "device to host", "submit", "serialise", "write")
# Comes in until the actor holds its inputs, and goes out after that; the driver, which sends first, counts it as in.
EITHER = ("transfer", "loop")


def collect(
    found: Mapping[str, Sequence[tuple[int, str, float, float]]], trips: Sequence[tuple[float, float]], flow: Flow,
    actors: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """The run's trips_us and spans: the trips' times, and what every process did in them, in microseconds.

    Args:
        found: the recorder's spans of each process, which is an actor or the driver; the driver's own object for
            actors that live in the driver's process.
        trips: start and end of each timed trip (of each episode, where trips overlap), in seconds of the clock.
        flow: as its users draw it; the edges of the driver's stand-in are the driver's.
        actors: of each process, where it is one of several of an actor.

    Returns:
        trips_us, a (start, end) for each trip counted from the first one's start, and spans, each (process, thread,
        stage, edge, trip, start, end) with threads and trips numbered from 0. The edge is the one that the process
        was busy with, by the stage; "-> reader" or "sender ->" where it has several.
    """
    origin = trips[0][0]

    def us(seconds: float) -> float:
        return round((seconds - origin) * 1e6, 2)

    rows = []
    in_one_process = any(own is found[DRIVER] for process, own in found.items() if process != DRIVER)
    for process, own in {DRIVER: found[DRIVER]}.items() if in_one_process else found.items():
        actor = DRIVER if process == TRAINER else actors.get(process, process)
        threads = list(dict.fromkeys(thread for thread, *_ in own))
        for number, (trip_start, trip_end) in enumerate(trips):
            inside = [span for span in own if span[3] > trip_start and span[2] < trip_end]
            held = max((span[3] for span in inside if span[1] == "stamp"), default=trip_start)
            incoming = iter(flow.edges_into(actor))
            for thread, stage, start, end in sorted(inside, key=lambda span: span[2]):
                outgoing = stage in OUTGOING or (actor != DRIVER and stage in EITHER and end > held)
                edge = "in one process" if in_one_process else _edge(actor, outgoing, flow)
                if not outgoing and stage == "deserialise" and not in_one_process:
                    edge = str(next(incoming, edge))
                start, end = max(start, trip_start), min(end, trip_end)
                rows.append((process, threads.index(thread), stage, edge, number, us(start), us(end)))
    return {"trips_us": [(us(start), us(end)) for start, end in trips], "spans": rows}


def _edge(actor: str, outgoing: bool, flow: Flow) -> str:
    edges = flow.edges_out_of(actor) if outgoing else flow.edges_into(actor)
    if len(edges) == 1:
        return str(edges[0])
    return f"{actor} ->" if outgoing else f"-> {actor}"
