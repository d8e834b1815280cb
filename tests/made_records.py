"""Records as the scripts write them, with numbers that a test chooses."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from common.flow.catalogue import build_flow, sizes_of
from common.record import files
from common.record.schema import Cost, Edge, Layout, Record, RowKey, Run

ENVIRONMENT = {"cpu_model": "Test CPU", "logical_cpus": 2, "memory_gib": 8, "gpus": [], "python": "3.11"}


def a_run(seconds: list[float], **changes: Any) -> Run:
    """A run that is ok, unless `changes` says otherwise."""
    usual = {
        "started_at": "2026-01-01T00:00:00+00:00",
        "status": "ok",
        "reason": None,
        "ceiling_before_seconds": [0.02],
        "ceiling_all_cores_seconds": [0.01],
        "payload_copied": True,
        "first_seconds": 5.0,
        "processes": {"driver": Cost(peak_memory_bytes=1, harness_seconds=0.001)},
    }
    return Run(seconds=seconds, **usual | changes)


def a_record(transport: str, *runs: Run | list[float], runtime: str = "store", **asked: Any) -> Record:
    """A record of these runs, or of the trips of each. `asked`: parts of the row's key, and sizes of its flow."""
    flow, flags = asked.pop("flow", "online-dpo"), asked.pop("flags", {})
    environment = ENVIRONMENT | asked.pop("environment", {})
    key = {name: asked.pop(name) for name in ("device", "message") if name in asked}
    layout = Layout(**asked.pop("layout", {}))
    message = key.get("message")
    drawn = build_flow(flow, asked, message)
    sizes = sizes_of(flow, None if "fields" in asked else message)
    return Record(
        row=RowKey(
            runtime=runtime, transport=transport, flow=flow, flags=flags, sizes=sizes | asked,
            layout=layout, **key,
        ),
        edges=[Edge(source=edge.source, reader=edge.reader, bytes=edge.bytes) for edge in drawn.edges],
        warmup=1,
        environments={"0": environment},
        runs=[run if isinstance(run, Run) else a_run(run) for run in runs],
    )  # fmt: skip


def a_sweep(transport: str, swept: str, points: dict[int, Run | list[float]], **asked: Any) -> Record:
    """A record of a sweep: of each value of what is swept, the run there or its trips."""
    records = {
        value: a_record(transport, run, **asked, **({swept: value} if swept != "in_flight" else {}))
        for value, run in points.items()
    }
    first = next(iter(records.values()))
    key = {} if swept != "fields" or "message" in asked else {"message": "fields"}  # which flat messages become
    row = replace(first.row, **key, sizes={name: size for name, size in first.row.sizes.items() if name != swept})
    runs = [replace(record.runs[0], at={swept: value}, edges=record.edges) for value, record in records.items()]
    return replace(first, row=row, runs=runs, sweep=f"{swept}={','.join(map(str, points))}")


def a_chain(transport: str, seconds: list[float], runtime: str) -> Record:
    return a_record(transport, seconds, runtime=runtime, flow="chain", payload_bytes=13, roles=2)


def written(path: Path, record: Record) -> str:
    """The record's file, as an argument of plot_results.py."""
    files.save(path, record)
    return str(path)
