"""One JSON file a run: what was asked, where it ran, every sample. No derived number is stored.

History of the schema:
    1   2026-11-20   the first
    2   2026-11-20   setup_seconds; trips_us and spans, when what was done, with --trace; new flags in arguments
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema

SCHEMA_VERSION = 2
# How rows, charts and files call the runtime of a script.
RUNTIMES = {
    "simulate_chat_learn_data_flow.py": "store",
    "ray_cg_simulate_chat_learn_data_flow.py": "graph",
    "ray_rdt_simulate_chat_learn_data_flow.py": "rdt",
    "torch_simulate_chat_learn_data_flow.py": "torch",
}

_seconds = {"type": "number", "exclusiveMinimum": 0}
_count = {"type": "integer", "minimum": 0}
_text = {"type": "string"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


SCHEMA = _object(
    schema_version={"enum": [1, SCHEMA_VERSION]},
    script=_text,  # file name of the script that wrote it
    started_at=_text,  # UTC, ISO 8601
    arguments={"type": "object"},  # every flag, by its name
    environment={"type": "object"},  # common/record/environment.py
    ceiling_seconds=_seconds,  # median of the samples below: one warm copy per edge, by --threads threads
    ceiling_samples_seconds={"type": "array", "items": _seconds, "minItems": 1},
    ceiling_all_cores_samples_seconds={"type": "array", "items": _seconds, "minItems": 1},  # the same by every core
    cases={
        "type": "array",
        "minItems": 1,
        "items": _object(
            flow=_text,
            transport=_text,
            device=_text,  # "cpu" or "cuda"
            status={"enum": ["ok", "waived", "failed"]},
            reason={"type": ["string", "null"]},  # why it is waived or failed, and what to do
            payload_copied={"type": ["boolean", "null"]},  # False: readers hold views; null: never seen
            path={"type": "object"},  # edge -> how its bytes travelled, as found at run time
            bytes_per_trip=_count,
            edges={"type": "array", "items": _object(**{"from": _text, "to": _text, "bytes": _count})},
            warmup=_count,  # trips between the first and the timed ones
            first_seconds={"type": ["number", "null"]},  # the very first trip
            seconds={"type": "array", "items": _seconds},  # one per timed trip, in order
            wrong_bytes=_count,  # over all trips, the untimed ones too; 0 or the exit code is 1
            stored_bytes=_count,  # taken in by the object store during the timed trips; channels bypass it
            spilled_bytes=_count,  # written to disk by the object store, from the first trip on
            peak_memory_bytes={"type": ["integer", "null"]},  # driver + roles, each at its own peak
            harness_seconds={
                "type": ["number", "null"]
            },  # inside the clock, yet the suite's own: all processes, after the first trip
            placement={"type": "object"},  # driver and role -> index of its node, the driver's first
        )
        # Since schema 2. setup_seconds: what -> seconds, before the first trip. Without --trace empty: trips_us,
        # [start, end] of each timed trip, and spans, what was done in them: [process, thread, stage, edge, trip,
        # start, end], all in microseconds from the first timed trip's start.
        | {"dependentRequired": {"spans": ["trips_us", "setup_seconds"]}},
    },
)


class RecordError(ValueError):
    """A record that cannot be read or written; the message is one line and says what to do."""


def default_path(folder: Path, script: str, transport: str) -> Path:
    """A fresh name: runtime, transport, time to the microsecond."""
    return folder / f"{RUNTIMES.get(script, 'other')}-{transport}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.json"


def create(path: Path, record: dict[str, Any]) -> None:
    """Write a record that does not exist yet.

    Raises:
        RecordError: the file exists, or its folder cannot be written.
    """
    jsonschema.validate(record, SCHEMA)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("x").close()
    except OSError as error:
        if os.path.isfile(path):
            raise RecordError(f"{path} exists: give --output another name, or move it away") from None
        raise RecordError(f"cannot write {path} ({error.strerror}): give --output another place") from None
    save(path, record)


def save(path: Path, record: dict[str, Any]) -> None:
    """Replace the record in one step: a run that is killed leaves the old one or the new one."""
    jsonschema.validate(record, SCHEMA)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    os.replace(partial, path)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def load(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        RecordError: no such file, not JSON (truncated, say), not a record, or a newer schema.
    """
    try:
        record = json.loads(path.read_text(), parse_constant=_refuse_constant)
    except OSError as problem:
        raise RecordError(f"cannot read {path} ({problem.strerror}): name a record that a script wrote") from None
    except ValueError:  # bad JSON and bad UTF-8 alike
        raise RecordError(f"{path} is not JSON, truncated perhaps: run its script again") from None
    version = record.get("schema_version") if isinstance(record, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RecordError(f"{path} has schema {version}, this version reads up to {SCHEMA_VERSION}: update the suite")
    defect = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(SCHEMA).iter_errors(record))
    if defect is not None:
        raise RecordError(
            f"{path} is no record of this suite ({defect.json_path}: {defect.message[:120]}): leave it out"
        )
    return record
