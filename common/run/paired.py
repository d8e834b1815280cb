"""Measure two configurations, or two checkouts, at the same time: their workers take turns after each group.

Whatever else happens on the machine affects both alike, so small differences can be seen in few runs.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import psutil

from common.errors import UsageError
from common.plan.plan import Plan, Turn, turn_ring
from common.plan.requirements import resident_bytes
from common.records import files
from common.records.schema import Record
from common.run.supervisor import measure_run
from common.runtimes.cleanup import RunFolder
from common.units import format_bytes


def check_pair(plans: Sequence[Plan]) -> None:
    """Raise UsageError if a paired measurement of these plans would hang, or its numbers could not be compared."""
    if len(plans) != 2:
        raise UsageError("a paired measurement needs two configurations that this machine can measure (--list)")
    counts = {(p.options.iterations, p.options.warmup, p.options.in_flight, p.options.group_size) for p in plans}
    if len(counts) > 1 or any(plan.options.duration or plan.options.trace for plan in plans):
        raise UsageError("a paired measurement needs equal --iterations, --warmup, --check-every and --in-flight, and "
                         "neither --duration nor a trace: change these flags")  # fmt: skip
    if len({plan.workload.edges for plan in plans}) > 1:
        raise UsageError("a paired measurement compares times of equal messages: give both the same --flow and sizes")
    # Actors of a compiled graph busy-wait, so each takes a core from the configuration whose turn it is.
    waiting = [len(plan.task_flow.actors) if plan.transport.runtime.busy_waits else 0 for plan in plans]
    needed = max(sum(waiting) - own + len(plan.workers) for own, plan in zip(waiting, plans, strict=True))
    cores = len(os.sched_getaffinity(0))
    if any(waiting) and needed > cores:
        raise UsageError(f"a paired measurement of graphs, whose actors busy-wait, needs {needed} cores here and there "
                         f"are {cores}: leave --paired or --against out, and give --runs 5")  # fmt: skip
    needed = sum(resident_bytes(plan.transport, plan.options, plan.task_flow) + plan.store_bytes for plan in plans)
    free = psutil.virtual_memory().available
    if needed > free:
        raise UsageError(f"a paired measurement needs {format_bytes(needed)} of memory and {format_bytes(free)} are "
                         "free: give a smaller payload or --object-store-bytes")  # fmt: skip


def run_paired(pair: Sequence[tuple[Plan, Record, Path]], order: int) -> list[int]:
    """Measure both plans once, each in a thread of this process, and return the exit codes.

    If one fails, the other is stopped and fails too, because its other iterations would not be paired.
    """
    stop = Event()

    def measure(plan: Plan, record: Record, path: Path, turn: Turn) -> int:
        code = 1
        try:
            code = measure_run(replace(plan, turn=turn), record, path, order, stop=stop)
        finally:
            if code:
                stop.set()
        return code

    with RunFolder() as run_folder, turn_ring(run_folder.folder, len(pair)) as turns, ThreadPoolExecutor() as threads:
        futures = [threads.submit(measure, *one, turn) for one, turn in zip(pair, turns, strict=True)]
        try:
            codes = [future.result() for future in futures]
        except KeyboardInterrupt:
            stop.set()
            return [future.result() for future in futures]
    for index, (_, record, path) in enumerate(pair):
        if codes[index] == 130:  # it was stopped because the other one failed
            other, _, _ = pair[1 - index]
            codes[index], record.runs[-1].reason = 1, f"paired configuration {other.configuration.name} failed"
            files.save(path, record)
    return codes
