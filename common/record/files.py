"""Records as files: written in one step, never over another one, read in every schema so far."""

import gzip
import os
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from common.errors import RecordError
from common.flow.catalogue import FLOWS, sizes_of
from common.record.rows import ROWS, RUNTIMES, Needs
from common.record.schema import SCHEMA_VERSION, Cost, Layout, Record, RowKey, Run

ROW_FLAGS = ("zero_copy", "copy_out", "huge_pages", "reuse_buffers")  # of schemas 1 and 2
SIZES = ("batch_size", "prompt_seq_len", "max_new_tokens", "num_samples", "payload_bytes", "roles")


def default_path(folder: Path, runtime: str, transport: str) -> Path:
    """A fresh name: runtime, transport, time to the microsecond."""
    return folder / f"{runtime}-{transport}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.json"


def create(path: Path, record: Record) -> None:
    """Write a record that does not exist yet.

    Raises:
        RecordError: the file exists, or its folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("x").close()
    except OSError as error:
        if os.path.isfile(path):
            raise RecordError(
                f"{path} exists: give another name, go on with it (benchmark.py --continue), or move it away"
            ) from None
        raise RecordError(f"cannot write {path} ({error.strerror}): give --output another place") from None
    save(path, record)


def save(path: Path, record: Record) -> None:
    """Replace the record in one step: a run that is killed leaves the old one or the new one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    os.replace(partial, path)


def below(paths: Iterable[Path]) -> list[Path]:
    """The files as they are, and the records of each folder and its folders (*.json, *.json.gz), by their names.

    Raises:
        RecordError: a folder has none.
    """
    found: list[Path] = []
    for path in paths:
        files = sorted([*path.rglob("*.json"), *path.rglob("*.json.gz")]) if path.is_dir() else [path]
        if not files:
            raise RecordError(f"{path} holds no record (*.json): name a folder that a script wrote into")
        found += files
    return found


def load(path: Path) -> Record:
    """Read a record of any schema, compressed by gzip where its name says so, as those with spans are published.

    Raises:
        RecordError: no such file, not JSON (truncated, say), not a record, or a newer schema.
    """
    try:
        written = path.read_bytes()
        found = msgspec.json.decode(gzip.decompress(written) if path.suffix == ".gz" else written)
    except OSError as problem:
        raise RecordError(f"cannot read {path} ({problem.strerror}): name a record that a script wrote") from None
    except (msgspec.DecodeError, zlib.error, EOFError):  # bad JSON and bad UTF-8 alike
        raise RecordError(f"{path} is not JSON, truncated perhaps: run its script again") from None
    version = found.get("schema_version") if isinstance(found, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordError(f"{path} has schema {version}, this version reads up to {SCHEMA_VERSION}: update the suite")
    try:
        return msgspec.convert(_of_one_run(found) if version in (1, 2) else found, Record)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        what = str(error).partition("\n")[0][:120]
        raise RecordError(f"{path} is no record of this suite ({what}): leave it out") from None


def _of_one_run(old: dict[str, Any]) -> dict[str, Any]:
    """A record of schema 1 or 2, which had one case, one process and one environment, as it would be written today."""
    (case,), arguments = old["cases"], dict(old["arguments"])
    runtimes = {script: runtime for runtime, script in RUNTIMES.items()}
    flags: dict[str, Any] = {name: True for name in ROW_FLAGS if arguments.pop(name, False)}
    for name in ("episode", "threads"):
        if arguments.pop(name, 1) > 1:
            flags[name] = old["arguments"][name]
    given = {name: arguments.pop(name, None) for name in SIZES}
    flow = arguments.pop("flow")
    usual = sizes_of(flow) if flow in FLOWS else {}
    runtime = runtimes.get(old["script"], old["script"])
    known = {(row.runtime, row.transport): row.needs for row in ROWS if row.says}
    needs = known.get((runtime, case["transport"]), Needs())
    row = RowKey(
        runtime=runtime, transport=case["transport"], flow=flow, flags=flags,
        sizes=usual | {name: size for name, size in given.items() if size is not None}, device=case["device"],
        layout=Layout(
            placement=arguments.pop("placement", None) or "pack", address=bool(arguments.pop("address", False)),
            trainer=needs.trainer, one_process=needs.one_process, nodes=case["placement"],
        ),
    )  # fmt: skip
    run = {
        "started_at": old["started_at"],
        "ceiling_before_seconds": old["ceiling_samples_seconds"],
        "ceiling_all_cores_seconds": old["ceiling_all_cores_samples_seconds"],
        # Of all processes together: whose it was, the old schemas do not say.
        "processes": {
            "all": Cost(case["peak_memory_bytes"], case["harness_seconds"] or 0.0)
        } if case["harness_seconds"] is not None else {},
        **{name: case[name] for name in Run.__struct_fields__ if name in case},
    }  # fmt: skip
    return {
        "row": msgspec.to_builtins(row),
        "edges": case["edges"],
        "warmup": case["warmup"],
        "arguments": arguments,
        "environments": {"0": old["environment"]},
        "runs": [msgspec.to_builtins(run)],
    }
