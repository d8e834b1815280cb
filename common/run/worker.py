"""One case from its flags to its record: refuse, measure the ceiling, run, save, report."""

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from common.flow.flow import DRIVER, Flow
from common.record import files as records
from common.record.environment import describe_environment
from common.run import options as command_line
from common.run.options import UsageError, Waived
from common.run.trips import Connect, TripFailed, measure
from common.runtime import devices
from common.runtime import ray_cluster as cluster
from common.trace import recorder as trace
from common.view import tables as report

# Flags whose values say where something is; a record keeps only whether they were given.
PLACES = ("output", "address", "trace")


@dataclass(frozen=True)
class Script:
    """What a script says of itself.

    file: its file; the name goes into the record.
    description: its docstring, shown by --help.
    transports: the values of --transport, and of each whether its readers hold copies or mapped views.
    default: the one that is taken without the flag; None: `settle` chooses.
    settle: takes the default for this machine (arguments, flow, GPUs) and gives the number of GPUs to use;
        raises UsageError for what its transports cannot do, and Waived for what this machine cannot.
    connect: the context in which the transport is ready (see measurement.Connect).
    runtime: the module that starts roles: cluster or processes.
    host_only: transports that move host memory, also on a machine with GPUs.
    """

    file: str
    description: str
    transports: dict[str, str]
    default: str | None
    settle: Callable[[Namespace, Flow, int], int]
    connect: Connect
    runtime: ModuleType = cluster
    host_only: tuple[str, ...] = ()


def run(script: Script, argv: Sequence[str] | None = None) -> int:
    """Run a script's case with these flags (None: those of the process).

    Returns:
        The exit code: 0, 1 (failed, or wrong bytes), 2 (refused or waived), 130 (interrupted).
    """
    try:
        arguments = command_line.parse_arguments(script.description, tuple(script.transports), script.default, argv)
        return _run(script, arguments)
    except (UsageError, records.RecordError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted before anything was measured", file=sys.stderr)
        return 130


def _run(script: Script, arguments: Namespace) -> int:
    if arguments.huge_pages:
        os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # torch reads it at its first allocation, the ceiling's
    flow = command_line.build_flow(arguments)
    if arguments.output is not None and os.path.exists(arguments.output):  # False where it cannot be known
        raise records.RecordError(f"{arguments.output} exists: give --output another name, or move it away")
    store_bytes = script.runtime.reserve(arguments, flow)
    asked = arguments.device
    arguments.device, gpus = devices.resolve_device(asked)
    if gpus and arguments.transport in script.host_only:
        if asked == "cuda":
            raise UsageError(f"{arguments.transport} moves host memory: give --device cpu, or another --transport")
        arguments.device, gpus = "cpu", 0
    waived = None
    try:
        gpus = script.settle(arguments, flow, gpus)
    except Waived as reason:
        waived = reason
    if arguments.copy_out and not arguments.zero_copy and script.transports[arguments.transport] == "copied":
        raise UsageError(f"--copy-out is for mapped transports: {arguments.transport} hands out copies already")
    name = Path(script.file).name
    output = arguments.output or records.default_path(command_line.RESULTS, name, arguments.transport)

    script.runtime.configure(arguments)  # before the environment is described
    samples, all_cores_samples = _ceiling_samples(flow, arguments, gpus)
    case = _new_case(flow, arguments)
    record = {
        "schema_version": records.SCHEMA_VERSION,
        "script": name,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "arguments": vars(arguments) | {flag: bool(getattr(arguments, flag)) for flag in PLACES},
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
    if arguments.trace:
        try:
            arguments.trace.parent.mkdir(parents=True, exist_ok=True)
            arguments.trace.touch(exist_ok=False)
        except OSError as error:
            raise UsageError(f"cannot write {arguments.trace} ({error.strerror}): give --trace another name") from None
    records.create(output, record)
    report.print_start(flow, record)
    try:
        return _measure(script, arguments, flow, case, store_bytes, gpus)
    finally:
        records.save(output, record)
        if case["spans"]:
            trace.write_chrome(arguments.trace, case)
        elif arguments.trace:
            arguments.trace.unlink()
        report.print_end(record, output)


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
        "setup_seconds": {},
        "trips_us": [],
        "spans": [],
    }


def _measure(
    script: Script, arguments: Namespace, flow: Flow, case: dict[str, Any], store_bytes: int, gpus: int
) -> int:
    """Fill in the case. Whatever happens, the samples so far stay in it and what was started is removed."""
    try:
        interrupt_on_signals()
        with script.runtime.connect(arguments, store_bytes, gpus) as roles:
            interrupt_on_signals()  # ray.init sets handlers of its own
            measure(arguments, flow, script.connect, case, roles)
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
