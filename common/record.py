"""Define the record of a measurement, write it to a file, and read it.

No derived number is stored. The suite in dataflow/ adds fields of its own, which readers of this module pass over.
"""

import argparse
import gzip
import os
import secrets
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from common import RecordError, RunFailed
from common.machine import describe_machine
from common.sizes import EDGES

SCHEMA_VERSION = 7


class Edge(msgspec.Struct, frozen=True):
    source: str = msgspec.field(name="from")
    reader: str = msgspec.field(name="to")
    bytes: int


class Workload(msgspec.Struct, frozen=True):
    """What is moved. Times are compared only between equal workloads."""

    flow: str
    message: str
    sizes: dict[str, Any]
    edges: tuple[Edge, ...]


class Configuration(msgspec.Struct, frozen=True):
    """How it is moved."""

    runtime: str
    transport: str
    flags: dict[str, Any] = {}
    device: str = "cpu"
    layout: dict[str, Any] = {}


class Run(msgspec.Struct):
    """One process that measured the configuration. Times are in seconds, in the order of the iterations."""

    started_at: str = ""  # UTC, ISO 8601
    status: str = "failed"  # or ok, or skipped
    # Why it failed, and what to do. The default stays only if nothing could be saved after the start.
    reason: str | None = "the run was killed, or its record could not be saved"
    memcpy_before_seconds: list[float] = []  # one warm copy per edge by one thread, one sample per pass
    memcpy_after_seconds: list[float] = []
    data_paths: dict[str, str] = {}  # edge -> how its bytes travelled
    warmup_iterations: int | None = None  # untimed ones after the first
    settled: bool | None = None  # whether their times had settled; None: their number was fixed
    warmup_seconds: list[float] = []
    first_seconds: float | None = None  # of the first iteration
    seconds: list[float] = []  # of the timed iterations
    wrong_bytes: int = 0
    wrong_bytes_by_field: dict[str, int] = {}  # "policy -> reward" -> bytes


class Record(msgspec.Struct, kw_only=True):
    """One configuration. It is written as one JSON file."""

    schema_version: int = SCHEMA_VERSION
    suite: str = ""
    workload: Workload
    configuration: Configuration
    environments: dict[str, dict[str, Any]] = {}  # node -> machine and versions
    runs: list[Run] = []


@contextmanager
def recorded_run(flags: argparse.Namespace) -> Iterator[Run]:
    """Yield a new run, and save its record whatever happens. End this process with one line if the run fails.

    Exit codes: 1 if the run failed, 130 if it was interrupted.
    """
    edges = tuple(Edge(sender, reader, flags.sizes[sender]) for sender, reader in EDGES)
    sizes = {"batch_size": flags.batch_size, "prompt_seq_len": flags.prompt_seq_len}
    layout = {"existing_cluster": bool(flags.address)}
    run = Run(started_at=datetime.now(UTC).isoformat(timespec="seconds"))
    record = Record(
        workload=Workload("online-dpo", "flat", sizes | {"max_new_tokens": 0, "num_samples": 2}, edges),
        configuration=Configuration(flags.runtime, flags.transport, device=flags.device, layout=layout),
        environments={"0": describe_machine()},
        runs=[run],
    )
    code, problem = 0, ""
    try:
        save(flags.output, record)
        yield run
        run.status, run.reason = "ok", None
    except (RunFailed, RecordError) as error:
        code, problem = 1, str(error)
    except KeyboardInterrupt:
        code, problem = 130, f"interrupted after {len(run.seconds)} timed iterations"
    run.reason = problem or None
    save(flags.output, record)
    if code:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(code)


def print_result(run: Run, flags: argparse.Namespace) -> None:
    """Print the time per iteration, the file of the record, and the time of all timed iterations."""
    milliseconds, memcpy = 1e3 * median(run.seconds), median(run.memcpy_before_seconds + run.memcpy_after_seconds)
    megabytes = sum(flags.sizes[sender] for sender, _ in EDGES) / 2**20
    print(f"{flags.runtime} {flags.transport}: {milliseconds:,.1f} ms per iteration of {megabytes:,.4g} MiB (median), "
          f"{milliseconds / memcpy / 1e3:.2f} times the memcpy time")  # fmt: skip
    if run.settled is False:
        print("warning: the times had not settled before the first timed iteration")
    print(f"record: {flags.output}")
    print(f"Execution time: {sum(run.seconds):.2f} seconds")


def save(path: Path, record: Any) -> None:
    """Write a record to its file in one step: a process that is killed leaves the old or the new file.

    Raise RecordError if it cannot be written.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
        os.replace(partial, path)
    except OSError as error:
        raise RecordError(f"cannot write {path} ({error.strerror}): free some space, or give another name") from None
    finally:  # also after an interrupt
        with suppress(OSError):
            partial.unlink()


def load(path: Path, kind: type = Record) -> Any:
    """Return a record of this kind, which may be compressed (.gz); raise RecordError if it cannot be read."""
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        version = msgspec.json.decode(text, type=dict).get("schema_version")
        if version != SCHEMA_VERSION:
            raise RecordError(f"{path} has schema {version}, and this version reads schema {SCHEMA_VERSION}: measure "
                              "again, or use the version that wrote it")  # fmt: skip
        record = msgspec.json.decode(text, type=kind)
        if any(run.status == "ok" and not run.seconds for run in record.runs):
            raise RecordError(f"{path} has an ok run without times, so something has changed it: leave it out")
        return record
    except OSError as error:
        raise RecordError(f"cannot read {path} ({error.strerror or error}): name a record of a script") from None
    except msgspec.ValidationError as error:
        raise RecordError(f"{path} is not a record of this suite ({str(error)[:120]}): leave it out") from None
    except (msgspec.DecodeError, UnicodeDecodeError, zlib.error, EOFError) as error:
        raise RecordError(f"{path} is not complete JSON ({error}): leave it out, or run its script again") from None
