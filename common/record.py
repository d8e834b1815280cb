# SPDX-License-Identifier: Apache-2.0
"""Define the record of a measurement, write it to a file, and read it. It holds samples and no derived number."""

import argparse
import errno
import fcntl
import os
import platform
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from common import RecordError, SuiteError
from common.facts import read_facts
from common.gpus import cuda_version, driver_version, name_gpus
from common.origin import describe_origin
from common.sizes import EDGES

SCHEMA_VERSION: Literal[10] = 10
# Longer than any iteration: such a number is an error.
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
MAX_OTHER_CORES = 0.3  # that other programs use during a run, if few cores are idle
MAX_OTHER_SHARE = 0.1  # of the idle cores, that other programs may use on a larger machine
MAX_STEAL_CORES = 0.1  # that the hypervisor takes, for other virtual machines


class ScriptRun(msgspec.Struct):
    """One process that measured the configuration. Times are in seconds, in the order of the iterations."""

    started_at: str = ""  # UTC, ISO 8601
    status: Literal["ok", "skipped", "failed"] = "failed"
    # Why it is skipped or failed, and what to do. The default stays only if nothing could be saved after the start.
    reason: str | None = "the run was killed, or its record could not be saved"
    # One warm copy per edge by one thread, one sample per pass. On GPUs, from the sender's to the reader's.
    memcpy_before_seconds: list[Seconds] = []
    memcpy_after_seconds: list[Seconds] = []
    # With GPUs: the same copies between them and host memory, by "to host, pinned", "from host, pinned", the same with
    # "pageable", and "to host, new".
    host_copy_seconds: dict[str, list[Seconds]] = {}
    # As found at run time. False: they got views of memory that another process wrote. None: not seen.
    readers_own_a_copy: bool | None = None
    warmup_iterations: int | None = None  # untimed ones after the first
    warmup_seconds: list[Seconds] = []
    first_seconds: Seconds | None = None  # of the first iteration
    seconds: list[Seconds] = []  # of the timed iterations
    # CPU use of other programs and idle cores, from the first iteration to the last; None: unknown, as with --address.
    other_cores: float | None = None
    idle_cores: float | None = None
    # In which the hypervisor ran other virtual machines, in the same period.
    steal_cores: float = 0.0
    # Whether the times had settled after the warm-up; None: unknown, as with a fixed number of warm-up iterations.
    settled: bool | None = None

    @property
    def max_other_cores(self) -> float:
        """Return how many cores other programs may use without disturbing this run."""
        return max(MAX_OTHER_CORES, MAX_OTHER_SHARE * (self.idle_cores or 0.0))

    @property
    def max_steal_cores(self) -> float:
        """Return the largest number of cores that a hypervisor took from a machine of this run."""
        return self.steal_cores

    @property
    def disturbance(self) -> str | None:
        """Return what disturbed this run so much that its times can mislead; None if nothing did."""
        if (self.other_cores or 0.0) > self.max_other_cores:
            return f"other programs used {self.other_cores:.1f} cores"
        if self.max_steal_cores > MAX_STEAL_CORES:
            return f"the hypervisor took {self.max_steal_cores:.1f} cores"
        return None

    def save_times(self, number: int, start: float, end: float) -> None:
        """Add the time of the iteration with this sequence number."""
        if number == 1:
            self.first_seconds = end - start
        elif number <= 1 + (self.warmup_iterations or 0):
            self.warmup_seconds.append(end - start)
        else:
            self.seconds.append(end - start)


class ScriptRecord(msgspec.Struct, kw_only=True):
    """One configuration and its runs. The suite in dataflow/ adds fields, which others pass over."""

    # The scripts and the suite of another version write another one.
    schema_version: Literal[10] = SCHEMA_VERSION
    # What is moved: flow, message, sizes, and edges with from, to and bytes.
    workload: dict[str, Any]
    configuration: dict[str, Any]  # how it is moved: runtime, transport, flags, device, layout
    traced: bool = False  # whether the suite recorded stages, which is part of the times
    arguments: dict[str, Any] = {}  # of the suite's flags, those that tell how the runs count
    environments: dict[str, dict[str, Any]] = {}  # node -> machine and versions
    runs: list[ScriptRun] = []


def make_record(flags: argparse.Namespace, run: ScriptRun) -> ScriptRecord:
    """Return the record of a run of one of the two scripts, which is not saved yet."""
    sizes = dict(
        batch_size=flags.batch_size,
        prompt_seq_len=flags.prompt_seq_len,
        max_new_tokens=0,
        num_samples=2,
    )
    edges = [
        {"from": sender, "to": reader, "bytes": flags.sizes[sender]} for sender, reader in EDGES
    ]
    workload = {"flow": "online-dpo", "message": "flat", "sizes": sizes, "edges": edges}
    configuration = {
        "runtime": flags.runtime,
        "transport": flags.transport,
        "flags": {},
        "device": flags.device,
    }
    configuration["layout"] = {"existing_cluster": bool(flags.address)}
    return ScriptRecord(
        workload=workload,
        configuration=configuration,
        # A script is not repeated, so its times count, as those of a call of the suite with one configuration.
        arguments={"allow_disturbed": True},
        environments={"0": describe_machine()},
        runs=[run],
    )


@contextmanager
def recorded_run(flags: argparse.Namespace) -> Iterator[ScriptRun]:
    """Wait until other measurements on this machine have ended, yield a new run, and save its record.

    It is also saved if the block fails. Then, print why and exit with 1 for a SuiteError, or 130 for an interrupt, and
    raise any other error again. Raise RecordError if the record can be saved nowhere.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    run = ScriptRun(started_at=started_at, warmup_iterations=flags.warmup)
    record = make_record(flags, run)
    try:
        with only_measurement():
            yield run
        run.status = "ok"
        run.reason = None
    except SuiteError as error:
        run.reason = str(error)
        print(f"error: {run.reason}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        run.reason = f"interrupted after {len(run.seconds)} timed iterations"
        print(f"error: {run.reason}", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        run.reason = f"{type(error).__name__}: {error}"
        raise
    finally:
        flags.output = save_somewhere(flags.output, record)


def describe_machine() -> dict[str, Any]:
    """Return the machine, its boot, and the versions on which times depend, with the commit of this project."""
    origin = describe_origin()
    gpus = name_gpus()
    return {
        "cpu_model": origin["cpu_model"],
        "logical_cpus": origin["logical_cpus"],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "gpus": gpus,
        "gpu_driver": driver_version() if gpus else None,
        "cuda": cuda_version(),
        "versions": {name: version(name) for name in ("ray", "torch", "numpy")},
        "python": platform.python_version(),
        "kernel": platform.release(),
        "facts": read_facts(),
        "boot": origin["boot"],
        "git_commit": origin["git_commit"],
        "git_dirty": origin["git_dirty"],
    }


@contextmanager
def only_measurement() -> Iterator[None]:
    """Wait while another script or suite measures on this machine, because both would disturb each other."""
    # Tests set the variable DATA_FLOW_LOCK.
    folder = os.open(os.environ.get("DATA_FLOW_LOCK", "/dev/shm"), os.O_RDONLY)
    with ExitStack() as stack:
        stack.callback(os.close, folder)  # which frees the lock, as the end of this process does
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                "waiting until another measurement of this suite on this machine has ended",
                flush=True,
            )
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def save(path: Path, record: msgspec.Struct) -> None:
    """Replace the record's file; raise RecordError if it cannot be written."""
    replace(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def save_somewhere(path: Path, record: msgspec.Struct) -> Path:
    """Save the record, if need be in the temporary folder; return the path, or raise RecordError if neither works."""
    try:
        save(path, record)
        return path
    except RecordError as error:
        saved = Path(tempfile.gettempdir()) / f"{path.stem[:200]}-{secrets.token_hex(4)}.json"
        save(saved, record)
        with suppress(OSError):  # it has fewer runs, and would be counted as another record
            path.unlink()
        print(
            f"error: {error}. The record is now {saved}: move it back before --continue",
            file=sys.stderr,
        )
        return saved


def replace(path: Path, content: bytes) -> None:
    """Replace a file in one step, also if this process is killed; raise RecordError if it cannot be written.

    The new content is on the disk before it takes the place of the old one.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space, or give another name" if is_full else "give another name"
        raise RecordError(f"cannot write {path} ({error.strerror}): {advice}") from None
    finally:  # also after an interrupt
        with suppress(OSError):
            partial.unlink()
