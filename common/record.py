"""Define the record of a measurement, write it to a file, and read it. It holds samples and no derived number.

The suite in dataflow/ adds fields of its own, which readers of this module pass over.
"""

import argparse
import gzip
import os
import platform
import re
import secrets
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from common import RecordError, SuiteError
from common.sizes import EDGES

SCHEMA_VERSION = 7


class Edge(msgspec.Struct, frozen=True):
    source: str = msgspec.field(name="from")
    reader: str = msgspec.field(name="to")
    bytes: int


class Workload(msgspec.Struct, frozen=True):  # what is moved
    flow: str
    message: str
    sizes: dict[str, Any]
    edges: tuple[Edge, ...]


class Configuration(msgspec.Struct, frozen=True):  # how it is moved
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
    warmup_seconds: list[float] = []
    first_seconds: float | None = None  # of the first iteration
    seconds: list[float] = []  # of the timed iterations
    wrong_bytes: int = 0
    wrong_bytes_by_field: dict[str, int] = {}  # "policy -> reward" -> bytes


class Record(msgspec.Struct, kw_only=True):
    """One configuration and its runs: one JSON file."""

    schema_version: int = SCHEMA_VERSION
    workload: Workload
    configuration: Configuration
    environments: dict[str, dict[str, Any]] = {}  # node -> machine and versions
    runs: list[Run] = []


@contextmanager
def recorded_run(flags: argparse.Namespace) -> Iterator[Run]:
    """Yield a new run, and save its record, whatever happens. If it fails, print why and exit with 1, or 130."""
    sizes = {"batch_size": flags.batch_size, "prompt_seq_len": flags.prompt_seq_len}
    edges = tuple(Edge(sender, reader, flags.sizes[sender]) for sender, reader in EDGES)
    layout = {"existing_cluster": bool(flags.address)}
    run = Run(started_at=datetime.now(UTC).isoformat(timespec="seconds"))
    run.data_paths = {f"{edge.source} -> {edge.reader}": f"{flags.transport} (as requested)" for edge in edges}
    record = Record(
        workload=Workload("online-dpo", "flat", sizes | {"max_new_tokens": 0, "num_samples": 2}, edges),
        configuration=Configuration(flags.runtime, flags.transport, device=flags.device, layout=layout),
        environments={"0": describe_machine()},
        runs=[run],
    )
    try:
        yield run
        run.status, run.reason = "ok", None
    except (SuiteError, KeyboardInterrupt) as error:
        is_interrupt = isinstance(error, KeyboardInterrupt)
        run.reason = f"interrupted after {len(run.seconds)} timed iterations" if is_interrupt else str(error)
        print(f"error: {run.reason}", file=sys.stderr)
        sys.exit(130 if is_interrupt else 1)
    finally:
        save(flags.output, record)


def describe_machine() -> dict[str, Any]:
    """Return the machine and the versions on which times depend."""
    model = re.search(r"^(?:model name|Model)\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    gpus = [path.read_text() for path in Path("/proc/driver/nvidia/gpus").glob("*/information")]
    return {
        "cpu_model": model[1] if model else platform.processor(),
        "logical_cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "gpus": [name.strip() for text in gpus for name in re.findall(r"Model:(.+)", text)],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("ray", "torch", "numpy")},
    }


def save(path: Path, record: Any) -> None:
    """Replace a file by a record in one step, so that a process that is killed leaves the old or the new one.

    Raise RecordError if it cannot be written.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
        os.replace(partial, path)
    except OSError as error:
        raise RecordError(f"cannot write {path} ({error.strerror}): free some space, or give another name") from None
    finally:  # also after an interrupt
        with suppress(OSError):
            partial.unlink()


def load(path: Path, kind: Any = Record) -> Any:
    """Return a record of this kind, which may be compressed (.gz); raise RecordError if it cannot be read."""
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        found = msgspec.json.decode(text, type=dict).get("schema_version")
        if found != SCHEMA_VERSION:
            raise RecordError(f"{path} has schema {found}, and this version reads schema {SCHEMA_VERSION}: measure "
                              "again, or use the version that wrote it")  # fmt: skip
        return msgspec.json.decode(text, type=kind)
    except OSError as error:
        raise RecordError(f"cannot read {path} ({error.strerror or error}): name a record of a script") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error, EOFError) as error:
        raise RecordError(f"{path} is not a complete record ({str(error)[:120]}): leave it out") from None
