"""A record of a sweep as a record a point, so that whatever reads records reads sweeps."""

import msgspec

from common.record.schema import Record, Run


def points(record: Record) -> list[Record]:
    """One record for each point, with the runs that were there; the record itself where it is no sweep.

    A point's value is a size of its row, but for the trips in flight, a flag, which one trip at a time is not.
    """
    if not record.sweep:
        return [record]
    found: dict[tuple[tuple[str, int], ...], list[Run]] = {}
    for run in record.runs:
        found.setdefault(tuple(run.at.items()), []).append(run)
    return [_point(record, dict(at), runs) for at, runs in found.items()]


def _point(record: Record, at: dict[str, int], runs: list[Run]) -> Record:
    depth = {"in_flight": at["in_flight"]} if at.get("in_flight", 1) > 1 else {}
    row = msgspec.structs.replace(
        record.row,
        sizes=record.row.sizes | {name: value for name, value in at.items() if name != "in_flight"},
        flags=record.row.flags | depth,
    )
    edges = next((run.edges for run in runs if run.edges), [])  # none where a point could not be drawn
    arguments = record.arguments | {name: at[name] for name in ("in_flight",) if name in at}
    return msgspec.structs.replace(record, row=row, edges=edges, arguments=arguments, runs=runs, sweep="")
