"""How long a run will take, about: from the published records of its row, by bytes. Only for waiting people."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from common.flow.catalogue import build_flow
from common.plan.options import LEAST_TRIPS
from common.plan.plan import Plan
from common.record import files
from common.record.rows import row_name

START_SECONDS = 7.0  # imports, ceiling, cluster, roles
CHECK_SECONDS = 0.02  # of an episode, beside what its bytes take
CHECK_BYTES_PER_SECOND = MAKE_BYTES_PER_SECOND = 1e9  # hashing what arrived; making random payloads
UNKNOWN = (1e-3, 1e-9)  # seconds a trip, and a byte, of rows that were never published


def published(folder: Path) -> dict[str, float]:
    """Seconds a byte of each row of the ladder that is published in this folder."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        record = files.load(path)
        seconds = [seconds for run in record.runs if run.status == "ok" for seconds in run.seconds]
        if seconds:
            row = record.row
            found[row_name(row.runtime, row.transport, row.flags)] = float(np.median(seconds)) / record.bytes_per_trip
    return found


def points_of(plan: Plan) -> Iterator[Plan]:
    """The plan of each point of a sweep at which there is a flow, whether or not it fits here."""
    for options in plan.options.points:
        with suppress(ValueError):
            asked = build_flow(options.flow, options.sizes, options.message)
            yield replace(plan, options=replace(options, sweep=None), asked=asked)


def expected_seconds(plan: Plan, known: dict[str, float]) -> float:
    """Of one run, from its start to its record; of a sweep, of all its points."""
    if plan.options.sweep:
        return sum(expected_seconds(point, known) for point in points_of(plan))
    options, count = plan.options, plan.asked.bytes_per_trip
    name = row_name(plan.row.runtime, plan.row.transport, options.row_flags)
    by_byte = known.get(name, known.get(row_name(plan.row.runtime, plan.row.transport, {}), UNKNOWN[1]))
    episode = options.trips_in_a_row * (UNKNOWN[0] + by_byte * count) + CHECK_SECONDS + count / CHECK_BYTES_PER_SECOND
    trips = episode * options.iterations / options.trips_in_a_row
    if options.duration:
        trips = max(options.duration, LEAST_TRIPS * episode / options.trips_in_a_row)
    untimed = (1 + options.warmup) * episode / options.trips_in_a_row
    return START_SECONDS + plan.flow.emitted_bytes * options.slots / MAKE_BYTES_PER_SECOND + untimed + trips
