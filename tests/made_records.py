"""Records as the scripts write them, with numbers that a test chooses."""

from common.flow import flow as flows
from common.flow.demo_sizes import Sizes
from common.flow.flow import online_dpo
from common.record import files as records

ENVIRONMENT = {"cpu_model": "Test CPU", "logical_cpus": 2, "memory_gib": 8, "gpus": [], "python": "3.11"}


def a_record(transport: str, seconds: list[float], runtime: str = "store", **changes) -> dict:
    flow = online_dpo(Sizes())
    case = {
        "flow": flow.name,
        "transport": transport,
        "device": "cpu",
        "status": "ok",
        "reason": None,
        "payload_copied": transport != "zero-copy",
        "path": {},
        "bytes_per_trip": flow.bytes_per_trip,
        "edges": [{"from": edge.source, "to": edge.reader, "bytes": edge.bytes} for edge in flow.edges],
        "warmup": 1,
        "first_seconds": 5.0,
        "seconds": seconds,
        "wrong_bytes": 0,
        "stored_bytes": 0,
        "spilled_bytes": 0,
        "peak_memory_bytes": 1,
        "harness_seconds": 0.001,
        "placement": {},
    }
    arguments = {"flow": flow.name, "zero_copy": False, "threads": 1, **vars(Sizes())}
    return {
        "schema_version": records.SCHEMA_VERSION,
        "script": next(script for script, name in records.RUNTIMES.items() if name == runtime),
        "started_at": "2026-01-01T00:00:00+00:00",
        "arguments": arguments | changes.pop("arguments", {}),
        "environment": ENVIRONMENT | changes.pop("environment", {}),
        "ceiling_seconds": 0.02,
        "ceiling_samples_seconds": [0.02],
        "ceiling_all_cores_samples_seconds": [0.01],
        "cases": [case | changes],
    }


def a_chain(transport: str, seconds: list[float], runtime: str) -> dict:
    asked = {"flow": "chain", "payload_bytes": 13, "roles": 2}
    made = flows.build_flow(asked)
    edges = [{"from": edge.source, "to": edge.reader, "bytes": edge.bytes} for edge in made.edges]
    case = {"flow": made.name, "edges": edges, "bytes_per_trip": made.bytes_per_trip}
    return a_record(transport, seconds, runtime, arguments=asked, **case)
