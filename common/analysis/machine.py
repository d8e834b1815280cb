"""The records of one machine among all that there are: this one's, or, where that is allowed, another's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import RecordError
from common.record import files
from common.record.environment import MACHINE_KEYS, describe_environment, machine_line
from common.record.schema import Record

# What only torch could tell is not known to those that do not import it.
KEYS = tuple(key for key in MACHINE_KEYS if key != "nccl")


@dataclass(frozen=True)
class Known:
    """Records of one machine, and what must be said about them."""

    records: list[Record]
    notes: list[str] = field(default_factory=list)


def known(paths: Sequence[Path], any_machine: bool, leave_out: Path | None = None) -> Known:
    """The records below these paths that are of this machine.

    Args:
        any_machine: where none is, those of the machine that has most.
        leave_out: a folder whose runs shall not be known, wherever copies of them lie.

    Raises:
        RecordError: there is none.
    """
    by_machine: dict[str, list[Record]] = {}
    notes, unread = [], 0
    unknown = {_runs(files.load(path)) for path in _files([leave_out])} if leave_out else set()
    for path in _files(paths):
        try:
            record = files.load(path)
        except RecordError:
            unread += 1
            continue
        if _runs(record) not in unknown and any(run.status == "ok" for run in record.runs):
            by_machine.setdefault(repr(_machine(record.environments.get("0", {}))), []).append(record)
    if unread:
        notes.append(f"{unread} files are no records that can be read: left out")
    here = describe_environment()
    own = by_machine.pop(repr(_machine(here)), [])
    others = sum(map(len, by_machine.values()))
    if not own and not (any_machine and by_machine):
        found = f"none of {others} records is" if others else "there is no record"
        raise RecordError(f"{found} of this machine ({machine_line(here)}): run python3 benchmark.py sweeps, or give "
                          "--any-machine" + " for an answer about another one" * bool(others))  # fmt: skip
    if not own:
        own = max(by_machine.values(), key=len)
        others -= len(own)
        notes.append(f"of another machine than this: {machine_line(own[0].environments.get('0', {}))}")
    return Known(own, [*notes, *[f"{others} records of other machines: left out"] * bool(others)])


def _runs(record: Record) -> tuple[Any, ...]:
    """What no other record has: when its runs began, and what they took."""
    return tuple((run.started_at, run.first_seconds, *run.seconds) for run in record.runs)


def _machine(environment: dict[str, Any]) -> list[Any]:
    return [environment.get(key) or None for key in KEYS]


def _files(paths: Sequence[Path]) -> list[Path]:
    """Every record that is named, or lies in a folder that is."""
    for path in paths:
        if not path.exists():
            raise RecordError(f"{path} does not exist: name records, or folders of them")
    return list(dict.fromkeys(file.resolve() for file in files.below(paths)))
