"""One case from its flags to its record: refuse, measure the ceiling, run, save, report."""

import json
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common import cluster, command_line, devices, records, report
from common.command_line import UsageError, Waived
from common.environment import describe_environment
from common.flows import DRIVER, Flow
from common.measurement import Connect, TripFailed, measure


def run(
    script: str,
    description: str,
    transports: Sequence[str],
    default: str | None,
    connect: Connect,
    argv: Sequence[str] | None = None,
) -> int:
    """Run a script's case.

    Args:
        script: the script's file; its name goes into the record.
        description: its docstring, shown by --help.
        transports: the values of --transport.
        default: the one that is taken without the flag; None: nccl where it can run, else shm.
        connect: the context in which the transport is ready (see measurement.Connect).
        argv: the flags, without the script; None for those of the process.

    Returns:
        The exit code: 0, 1 (failed, or wrong bytes), 2 (refused or waived), 130 (interrupted).
    """
    try:
        arguments = command_line.parse_arguments(description, transports, default, argv)
        return _run(Path(script).name, arguments, connect)
    except (UsageError, records.RecordError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted before anything was measured", file=sys.stderr)
        return 130


def _run(script: str, arguments: Namespace, connect: Connect) -> int:
    flow = command_line.build_flow(arguments)
    if script.startswith("ray_cg") and arguments.zero_copy:
        raise UsageError("--zero-copy is the object store's: in the compiled graph give --transport zero-copy")
    if arguments.output is not None and os.path.exists(arguments.output):  # False where it cannot be known
        raise records.RecordError(f"{arguments.output} exists: give --output another name, or move it away")
    store_bytes = command_line.object_store_bytes(arguments, flow)
    arguments.device, gpus = devices.resolve_device(arguments.device)
    waived = _choose_transport(arguments, gpus, len(flow.roles))
    output = arguments.output or records.default_path(command_line.RESULTS, script, arguments.transport)

    samples, all_cores_samples = _ceiling_samples(flow, arguments, gpus)
    case = _new_case(flow, arguments)
    record = {
        "schema_version": records.SCHEMA_VERSION,
        "script": script,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "arguments": json.loads(json.dumps(vars(arguments) | {"output": None, "address": bool(arguments.address)})),
        "environment": describe_environment(),
        "ceiling_seconds": sorted(samples)[len(samples) // 2],
        "ceiling_samples_seconds": samples,
        "ceiling_all_cores_samples_seconds": all_cores_samples,
        "cases": [case],
    }
    if waived is not None:
        case |= {"status": "waived", "reason": str(waived)}
        records.create(output, record)
        raise waived
    records.create(output, record)
    report.print_start(flow, record)
    try:
        return _measure(arguments, flow, connect, case, store_bytes, gpus)
    finally:
        records.save(output, record)
        report.print_end(record, output)


def _choose_transport(arguments: Namespace, gpus: int, roles: int) -> Waived | None:
    """Settle the compiled graph's default, and whether nccl must be waived."""
    if arguments.transport is None:
        arguments.transport = "nccl" if gpus >= roles else "shm"
    if arguments.transport == "nccl":
        try:
            devices.need_nccl(gpus, roles)
        except Waived as reason:
            return reason
    return None


def _ceiling_samples(flow: Flow, arguments: Namespace, gpus: int) -> list[list[float]]:
    where = devices.role_devices(arguments.device, gpus, [role.name for role in flow.roles])
    where[DRIVER] = "cpu" if arguments.device == "cpu" else "cuda:0"
    edges = [(edge.bytes, where[edge.source], where[edge.reader]) for edge in flow.edges]
    return devices.measure_ceiling(edges, [arguments.threads, len(os.sched_getaffinity(0))])


def _new_case(flow: Flow, arguments: Namespace) -> dict[str, Any]:
    return {
        "flow": flow.name,
        "transport": arguments.transport,
        "device": arguments.device,
        "status": "failed",
        "reason": "the run was killed",  # what the record says if nobody lives to write more
        "payload_copied": None,
        "path": {},
        "bytes_per_trip": flow.bytes_per_trip,
        "edges": [{"from": edge.source, "to": edge.reader, "bytes": edge.bytes} for edge in flow.edges],
        "warmup": arguments.warmup,
        "first_seconds": None,
        "seconds": [],
        "wrong_bytes": 0,
        "stored_bytes": 0,
        "spilled_bytes": 0,
        "peak_memory_bytes": None,
        "harness_seconds": None,
        "placement": {},
    }


def _measure(
    arguments: Namespace, flow: Flow, connect: Connect, case: dict[str, Any], store_bytes: int, gpus: int
) -> int:
    """Fill in the case. Whatever happens, the samples so far stay in it and the cluster is removed."""
    cluster.configure(arguments)
    try:
        interrupt_on_signals()
        with cluster.connect(arguments, store_bytes, gpus):
            interrupt_on_signals()  # ray.init sets handlers of its own
            measure(arguments, flow, connect, case, gpus)
    except TripFailed as error:
        case |= {"status": "failed", "reason": str(error)}
        return 1
    except (KeyboardInterrupt, SystemExit):  # Ray's own handler of SIGTERM, while it starts, exits
        case |= {"status": "failed", "reason": f"interrupted after {len(case['seconds'])} timed trips"}
        return 130
    except Exception as error:  # a defect of ours: the traceback shows it, the record says so
        case |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
        raise
    return 0 if case["status"] == "ok" else 1


def interrupt_on_signals() -> None:
    """Let a supervisor's SIGTERM leave as little behind as Ctrl-C, and Ctrl-C work where it was ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
