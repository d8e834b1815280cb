"""Which of the records belong into which table and picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.analysis.ladder import on_one_ceiling
from common.analysis.results import Result, results_of
from common.errors import RecordError
from common.flow.catalogue import MICROBENCHMARKS, build_flow
from common.record import files
from common.record.environment import MACHINE_KEYS
from common.record.points import points
from common.record.schema import Record
from common.text import episodes as episode_table
from common.units import format_bytes

Records = dict[Path, Record]


@dataclass(frozen=True)
class Parts:
    """Rows, by the table and the picture that they belong into.

    traced: of the ladder's flow. fields: traced, of messages of fields, where the former are there too.
    flat: episodes of flat tensors of as many bytes as the others' messages.
    """

    ladder: list[Result]
    hops: list[Result]
    traced: list[Result]
    episodes: list[Result]
    fields: list[Result]
    flat: list[Result]


def load(paths: list[Path], mixed: bool) -> Records:
    """The records, by their files.

    Raises:
        RecordError: one cannot be read, or two are of unlike machines.
    """
    records = {path: files.load(path) for path in files.below(paths)}
    machines = {}
    for path, record in records.items():
        try:
            for point in points(record) if ".py:" not in record.row.flow else ():
                if point is record or point.edges:  # a point of a sweep that cannot be has none
                    build_flow(point.row.flow, point.row.sizes, point.row.message)
        except (TypeError, ValueError):
            raise RecordError(f"{path} is of a flow that is unknown here: update the suite, or leave it out") from None
        done = [run for run in record.runs if run.status == "ok"]
        if not all(run.seconds and run.processes for run in done):
            raise RecordError(f"{path} has a row that is ok and has no trips: run its script again")
        if done:
            machines[path] = record.environments.get("0", {})
    first, expected = next(iter(machines.items()), (None, {}))
    for path, machine in {} if mixed else machines.items():
        for key in MACHINE_KEYS:
            if machine.get(key) != expected.get(key):
                raise RecordError(f"{path} is of another machine than {first} ({key}): plot them apart, or --mixed")
    for result in results_of(records.values()) if mixed else ():
        if len({str([machine.get(key) for key in MACHINE_KEYS]) for machine in result.environments}) > 1:
            raise RecordError(f"{result.name} was measured on several machines, one row on each: plot them apart")
    return records


def parted(records: Records) -> Parts:
    """One flow at one size is a ladder, whichever it is; where there are several, the microbenchmarks have a table of
    their own, and so have episodes.

    Raises:
        RecordError: none has a run that is ok, or what remains is of several flows or sizes.
    """
    if records and not any(run.status == "ok" for record in records.values() for run in record.runs):
        raise RecordError("none of the records holds a row that is ok: run the scripts again")
    traced = {path: record for path, record in records.items() if any(run.spans for run in record.runs)}
    fields = {path: record for path, record in traced.items() if record.row.message != "bare"}
    if len(fields) == len(traced):
        fields = {}
    traced = {path: record for path, record in traced.items() if path not in fields}
    left = {path: record for path, record in records.items() if path not in fields}
    episodes = {path: record for path, record in left.items() if episode_table.is_episode(Result((record,)))}
    moved = [on_one_ceiling(group) for group in episode_table.groups(results_of(episodes.values()))]
    shown = [result for group in moved for result in group]
    flat = {path: record for path, record in left.items() if episode_table.is_flat_episode(Result((record,)), shown)}
    apart = {*traced, *episodes, *flat}
    others = {path: record for path, record in left.items() if path not in apart}
    small = {}
    if len({_moved(record) for record in others.values()}) > 1:
        small = {path: record for path, record in others.items() if record.row.flow in MICROBENCHMARKS}
    ladder = {path: record for path, record in others.items() if path not in small}
    pictured = {**ladder, **traced}
    for path, record in pictured.items():
        first, other = next(iter(pictured.items()))
        if _moved(record) != _moved(other):
            raise RecordError(f"{path} moves {_words(record)}, {first} {_words(other)}: plot them apart")
    done = [record for record in pictured.values() if any(run.status == "ok" for run in record.runs)]
    if len({any(run.alternation for run in record.runs) for record in done}) > 1:
        raise RecordError("some of the rows alternated with others, so their times are not those of rows by "
                          "themselves: plot them apart")  # fmt: skip
    hops = results_of(small.values())
    hops.sort(key=lambda result: (result.flow.name, result.record.edges[0].bytes))
    rows = on_one_ceiling(results_of(ladder.values()))
    return Parts(
        rows, hops, results_of(traced.values()), shown, results_of(fields.values()), results_of(flat.values())
    )  # fmt: skip


def have_one_table(records: Sequence[Record]) -> bool:
    """Whether these rows, measured or not, go beside each other; sweeps, episodes and microbenchmarks stand apart."""
    rows = [Result((record,)) for record in records if not record.sweep and record.row.flow not in MICROBENCHMARKS]
    episodes = [row for row in rows if episode_table.is_episode(row)]
    others = [row for row in rows if not (row in episodes or episode_table.is_flat_episode(row, episodes))]
    return len({_moved(row.record) for row in others}) < 2


def _moved(record: Record) -> tuple[str, tuple[tuple[str, str, int], ...]]:
    return record.row.flow, tuple((edge.source, edge.reader, edge.bytes) for edge in record.edges)


def _words(record: Record) -> str:
    return f"{format_bytes(record.bytes_per_trip)} of {record.row.flow}"
