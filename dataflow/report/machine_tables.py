# SPDX-License-Identifier: Apache-2.0
"""Show what was measured of a machine: rates and costs as medians, with the smallest and the largest sample."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dataflow.machine.samples import PAUSE_SECONDS, MachineSamples, NewMemory
from dataflow.records.machine import machine_line
from dataflow.report.tables import Column, TextTable, format_range, format_significant, make_table
from dataflow.units import GB, MICROSECOND, format_bytes

REPORTING = "free page reporting"


@dataclass(frozen=True)
class MeasuredCost:
    """A line of the table of costs: what, its unit, and its samples in it."""

    name: str
    unit: str
    samples: Sequence[float]


def copies_table(machine: MachineSamples) -> TextTable:
    """Return the rate of warm copies by number of threads (rows) and by bytes of a pass (columns)."""
    sizes = sorted({copies.bytes for copies in machine.warm_copies})
    counts = sorted({copies.threads for copies in machine.warm_copies})
    rates = {(copies.threads, copies.bytes): copies.rates for copies in machine.warm_copies}

    def column_of(size: int) -> Column:
        return Column(
            format_bytes(size), lambda threads: format_samples(rates.get((threads, size), []))
        )

    threads = Column("GB/s of copies, memory used before", name_threads)
    return make_table(counts, [threads, *map(column_of, sizes)])


def name_threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def format_samples(rates: Sequence[float]) -> str:
    return format_significant(median(rates) / GB) if rates else "-"


def costs_table(machine: MachineSamples) -> TextTable:
    """Return what page faults, pickling, hashing and waking another process take."""
    pause = f"{PAUSE_SECONDS:g} s"
    costs = [
        MeasuredCost(
            "page fault, memory just freed", "µs", in_microseconds(machine, machine.just_freed)
        ),
        MeasuredCost(
            f"page fault, memory freed {pause} ago",
            "µs",
            in_microseconds(machine, machine.freed_before),
        ),
        MeasuredCost("copy into new memory, 1 thread", "GB/s", rates_of(machine.just_freed)),
        MeasuredCost("the same with huge pages", "GB/s", rates_of(machine.huge_pages)),
        MeasuredCost(
            "pickling a list of integers",
            "GB/s",
            rates(machine.pickle_bytes, machine.pickle_seconds),
        ),
        MeasuredCost(
            "hash of the verification", "GB/s", rates(machine.hash_bytes, machine.hash_seconds)
        ),
        MeasuredCost(
            "round trip to another process",
            "µs",
            [seconds / MICROSECOND for seconds in machine.round_trip_seconds],
        ),
    ]
    columns = [
        Column("cost", lambda cost: cost.name),
        Column("median", lambda cost: format_significant(median(cost.samples))),
        Column("unit", lambda cost: cost.unit, is_text=True),
        Column("range", lambda cost: format_range(cost.samples), is_text=True),
    ]
    return make_table(costs, columns)


def in_microseconds(machine: MachineSamples, memory: NewMemory) -> list[float]:
    return [seconds / MICROSECOND for seconds in machine.fault_seconds(memory)]


def rates_of(memory: NewMemory) -> list[float]:
    return rates(memory.bytes, memory.seconds)


def rates(size: int, seconds: Sequence[float]) -> list[float]:
    """Return the GB/s of each sample."""
    return [size / sample / GB for sample in seconds]


def facts_of(environment: dict[str, Any]) -> list[str]:
    """Return what every table says of a machine, and a line of what else changes its times, as far as it is known."""
    facts = environment.get("facts") or {}
    texts = {
        "CPU": join_items(facts.get("cpu") or {}),
        "caches": ", ".join(
            f"{name} {format_bytes(size)}" for name, size in (facts.get("caches") or {}).items()
        ),
        "free memory goes back to the host in blocks of": describe_reporting(facts),
        "governor": facts.get("governor"),
        "limit of CPUs": facts.get("cpu_limit"),
        "limit of memory": facts.get("memory_limit"),
        "C library": facts.get("glibc"),
    }
    known = [f"{name} {text}" for name, text in texts.items() if text]
    return [machine_line(environment), "; ".join(known)]


def join_items(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


def describe_reporting(facts: dict[str, Any]) -> str:
    """Return the bytes of the blocks that a virtual machine gives back to its host; "" if it gives none back."""
    order = facts.get("page_reporting_order")
    if order is None or REPORTING not in (facts.get("balloon") or []):
        return ""
    return format_bytes(mmap.PAGESIZE * 2**order)
