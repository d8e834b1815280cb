"""Rows measured at the same time, whose trips alternate: drift and neighbours fall on all of them alike."""

import os
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from common.analysis.results import Result
from common.errors import RunFailed, UsageError
from common.plan.plan import Plan
from common.plan.turn import ring
from common.record.schema import Record
from common.run.item import Item
from common.run.supervisor import run_steps
from common.runtime.needs import resident_bytes
from common.runtime.workplace import Workplace
from common.units import format_bytes


def groups_of(items: Sequence[Item], alternate: bool, checkout: Path | None) -> list[list[Item]]:
    """The rows by themselves, or those together that alternate.

    alternate: all of them. checkout: each with what it is there; their records go to new/ and old/.

    Raises:
        UsageError: rows cannot alternate.
    """
    if alternate:
        groups = [list(items)]
    elif checkout:
        groups = [_here_and_there(item, checkout) for item in items]
    else:
        return [[item] for item in items]
    for group in groups:
        _refuse([item.plan for item in group])
    return groups


def _here_and_there(item: Item, checkout: Path) -> list[Item]:
    """A row as it is here, and as it is in another checkout."""
    folder, name = item.output.parent, item.output.name
    there = replace(item.plan, checkout=checkout.resolve())
    return [
        Item(item.plan, None, folder / "new" / name, item.seconds),
        Item(there, None, folder / "old" / name, item.seconds),
    ]


def _refuse(plans: Sequence[Plan]) -> None:
    """What cannot be measured so.

    Raises:
        UsageError: there are too few rows, unlike numbers of trips, or traces; or too few cores, or too little memory.
    """
    if len(plans) < 2:
        raise UsageError("--alternate: the trips of several rows take turns: give two --rows or more that this "
                         "machine has (--list)")  # fmt: skip
    if any(plan.options.trace for plan in plans):
        raise UsageError("rows that alternate are not traced: leave --trace out")
    for name in ("sweep", "duration"):
        if any(getattr(plan.options, name) for plan in plans):
            raise UsageError(f"rows that alternate need as many trips, not --{name}: give --iterations")
    shapes = ("iterations", "warmup", "in_flight", "trips_in_a_row")
    if len({tuple(getattr(plan.options, name) for name in shapes) for plan in plans}) > 1:
        raise UsageError("rows that alternate need as many trips: give all the same --iterations, --warmup, --episode, "
                         "--in-flight")  # fmt: skip
    if len({str(plan.edges) for plan in plans}) > 1:
        raise UsageError("rows that alternate are compared, so they move the same: give all one --flow and its sizes")
    _refuse_spinning(plans)
    needed_bytes = sum(resident_bytes(plan.row, plan.options, plan.flow) + plan.store_bytes for plan in plans)
    memory_bytes = psutil.virtual_memory().available
    if needed_bytes > memory_bytes:
        raise UsageError(
            f"rows that alternate need {format_bytes(needed_bytes)}, and {format_bytes(memory_bytes)} are free: "
            "give fewer rows, a smaller payload, or a smaller --object-store-bytes"
        )


def _refuse_spinning(plans: Sequence[Plan]) -> None:
    """A graph's actors spin while they wait, so they take a core each from whoever has its turn."""
    spinning = [len(plan.flow.actors) * (plan.row.runtime == "graph") for plan in plans]
    working = [len(plan.participants) for plan in plans]
    most = max(sum(spinning) - own + work for own, work in zip(spinning, working, strict=True))
    cores = len(os.sched_getaffinity(0))
    if sum(spinning) and most > cores:
        raise UsageError(
            f"rows that alternate wait, and a graph's actors spin while they wait: these rows need {most} cores "
            f"and there are {cores}: measure one after the other, without --alternate or --against"
        )


def run_alternately(rows: Sequence[tuple[Plan, Record, Path]], order: int) -> list[int]:
    """Measure each row once more; where one fails, all of them do, since the trips that are left stand alone.

    Args:
        rows: plan, record and the record's file of each.

    Returns:
        The exit codes.
    """
    codes: dict[int, int] = {}
    with Workplace() as place, ring(place.folder, len(rows)) as turns:
        running = {
            number: run_steps(replace(plan, turn=turn), record, output, lambda _: None, order, place.folder.name)
            for number, ((plan, record, output), turn) in enumerate(zip(rows, turns, strict=True))
        }
        try:
            while running:
                for number, steps in list(running.items()):
                    try:
                        next(steps)
                    except StopIteration as end:
                        codes[number] = end.value
                        del running[number]
                        if end.value:
                            name = Result((rows[number][1],)).name
                            codes |= _end(running, None if end.value == 130 else f"{name}, with which it alternates")
                            break
        finally:
            codes |= _end(running, None)
    return [codes[number] for number in range(len(rows))]


def _end(running: dict[int, Generator[None, None, int]], failed: str | None) -> dict[int, int]:
    """Interrupt what still runs, or let it fail since another has; the exit codes."""
    codes = {number: 1 if failed else 130 for number in running}
    for steps in running.values():
        if failed:
            with suppress(StopIteration):
                steps.throw(RunFailed(f"{failed}, failed"))
        else:
            steps.close()
    running.clear()
    return codes
