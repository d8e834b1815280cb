# SPDX-License-Identifier: Apache-2.0
"""Build records as the scripts write them, with numbers that a test chooses."""

from pathlib import Path
from typing import Any

from dataflow.flows.catalogue import build_flow, flow_sizes
from dataflow.machine.samples import MachineSamples, NewMemory, WarmCopies
from dataflow.records import files
from dataflow.records.schema import (
    Configuration,
    Layout,
    ProcessCost,
    Record,
    Run,
    Workload,
    record_edges,
)
from dataflow.report.tables import Section

ENVIRONMENT = {
    "cpu_model": "Test CPU",
    "logical_cpus": 2,
    "memory_gib": 8,
    "gpus": [],
    "python": "3.11",
}


def make_run(seconds: list[float], **changes: Any) -> Run:
    """Return a run with these timed iterations; it is ok unless `changes` say otherwise."""
    fields: dict[str, Any] = {
        "started_at": "2026-01-01T00:00:00+00:00",
        "status": "ok",
        "reason": None,
        "memcpy_before_seconds": [0.02],
        "memcpy_all_cores_seconds": [0.01],
        "readers_own_a_copy": True,
        "first_seconds": 5.0,
        "processes": {"driver": ProcessCost(peak_memory_bytes=1)},
    }
    return Run(seconds=seconds, **fields | changes)


def make_record(
    transport: str, *runs: Run | list[float], runtime: str = "store", **changes: Any
) -> Record:
    """Return a record of these runs, or of runs with these iterations.

    changes: suite, table, flow, message, flags, device, layout, traced, environment, arguments, sizes of the flow.
    """
    flow_name, message = changes.pop("flow", "online-dpo"), changes.pop("message", None)
    record_fields = {
        name: changes.pop(name) for name in ("suite", "table", "traced") if name in changes
    }
    configuration_fields = {
        name: changes.pop(name) for name in ("flags", "device") if name in changes
    }
    layout, environment = (
        Layout(**changes.pop("layout", {})),
        ENVIRONMENT | changes.pop("environment", {}),
    )
    arguments = {"warmup": 1} | changes.pop("arguments", {})
    flow = build_flow(flow_name, changes, message)
    sizes = flow_sizes(flow_name, None if "fields" in changes else message) | changes
    form = "flat" if flow.is_flat else message or "fields"
    return Record(
        workload=Workload(flow=flow_name, message=form, sizes=sizes, edges=record_edges(flow)),
        configuration=Configuration(
            runtime=runtime, transport=transport, layout=layout, **configuration_fields
        ),
        arguments=arguments,
        environments={"0": environment},
        runs=[run if isinstance(run, Run) else make_run(run) for run in runs],
        **record_fields,
    )


def make_sweep(
    transport: str, points: dict[int, Run | list[float]], **changes: Any
) -> list[Record]:
    """Return a record per value of --iteration-bytes."""
    changes["table"] = "sweep-iteration-bytes"
    return [
        make_record(transport, run, iteration_bytes=size, **changes) for size, run in points.items()
    ]


def rows_of(section: Section) -> list[dict[str, str]]:
    """Return the cells of each row of a section's table by their headers."""
    return [dict(zip(section.table.headers, cells, strict=True)) for cells in section.table.cells]


def write_record(path: Path, record: Record) -> str:
    """Write the record's file; return its name as an argument of plot_results.py."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.save(path, record)
    return str(path)


def write_campaign(folder: Path, *times: tuple[Any, ...], **changes: Any) -> Path:
    """Write three runs of each configuration: name, flags, seconds, and changes of its runs."""
    for position, (name, flags, seconds, *more) in enumerate(times):
        runtime, transport = name.split()
        runs = [make_run([seconds * noise], **dict(*more)) for noise in (1.0, 1.02, 1 / 1.02)]
        environment = {"clock_code": "a", "versions": {"ray": "2.60.0", "torch": "2.13.0"}}
        fields = {
            "suite": "campaign",
            "table": "headline",
            "flags": flags,
            "runtime": runtime,
            "environment": environment,
        }
        write_record(folder / f"{position}.json", make_record(transport, *runs, **fields | changes))
    return folder


def make_machine() -> MachineSamples:
    """Return the samples of a machine with two cores, each of which copies 10 GB/s; a page fault takes 1 µs."""
    rate = 10**10
    faults = 2_500_000
    size = 256 * 2**20
    just_freed = NewMemory(bytes=rate, faults=faults, seconds=[3.5])
    return MachineSamples(
        measured_at="2026-01-01T00:00:00+00:00",
        environment={},
        warm_copies=[WarmCopies(size, threads, [size / rate]) for threads in (1, 2)],
        just_freed=just_freed,
        freed_before=NewMemory(bytes=rate, faults=faults, seconds=[13.5]),
        huge_pages=just_freed,
        pickle_bytes=1,
        pickle_seconds=[1.0],
        hash_bytes=1,
        hash_seconds=[1.0],
        round_trip_seconds=[1.0],
    )
