# SPDX-License-Identifier: Apache-2.0
"""List the faults that a run must survive, and hostile uses of the commands: how each is provoked, and what it says.

`make faults` stores what comes of them; this program then writes it into the tables of docs/studies/failures.md.
"""

import fcntl
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from common.origin import describe_origin
from common.record import replace
from common.record_files import ARCHIVE
from dataflow.report.render import rewrite_pages
from dataflow.report.tables import Column, Section, make_table

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "results" / "evidence"
MANY = ("--warmup", "0", "--iterations", "1000000")
CHAIN = ("--flow", "chain", "--actors", "2")
FEW = ("--iterations", "8", *CHAIN)
HANGS = (*MANY, *CHAIN, "--timeout", "3")
FIELDS = ("--flow", "grpo", "--batch-size", "2", "--prompt-len", "8", "--response-len", "8")
THREE = ("--batch-size", "8", "--prompt-seq-len", "64", "--iterations", "3")
ENOUGH = 6  # iterations before something happens
CANNOT_PREPARE = 77  # exit code of LITTLE_MEMORY and NO_HOME


def shell(script: str) -> dict[str, Any]:
    """Return the option of begin_run for a command that runs in a shell, as "$@"."""
    return {"prefix": ("sh", "-c", script, "sh")}


def mount(options: str, folder: str, command: str = "") -> dict[str, Any]:
    """Return the option for a mount namespace of its own, in which a folder is a small file system."""
    words = shell(f'mount -t tmpfs -o {options} none {folder}; {command} exec "$@"')["prefix"]
    return {"prefix": ("unshare", "--mount", *words)}


SMALL_MEMORY, READ_ONLY_MEMORY = mount("size=90m", "/dev/shm"), mount("ro", "/dev/shm")
FULL_DISK = mount("size=8k", "/mnt", "cat /dev/zero > /mnt/full 2>/dev/null;")
SMALL_LIMIT = shell('ulimit -v 3000000; exec "$@"')
# A control group of version 1.
LITTLE_MEMORY = shell("""group=/sys/fs/cgroup/memory/hostile-$$; mkdir $group || exit 77
    echo 400M > $group/memory.limit_in_bytes; (echo 0 > $group/cgroup.procs; exec "$@"); code=$?
    rmdir $group; exit $code""")
# Two runs; exactly one of them says that it waits.
TWICE = shell(""""$@" --output "$TMPDIR/other" >"$TMPDIR/1" & "$@" >"$TMPDIR/2"; code=$?; wait $! || code=$?
    [ $(cat "$TMPDIR/1" "$TMPDIR/2" | grep -c "^waiting until another measurement") = 1 ] || code=3
    cat "$TMPDIR/2"; rm "$TMPDIR/other" "$TMPDIR/1" "$TMPDIR/2"; exit $code""")
LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', 26399)); time.sleep(300)"
LISTENER = shell(f'{sys.executable} -c "{LISTEN}" & "$@"; code=$?; kill $!; exit $code')
# A user of a container. The run may read everything, because Python can lie below a folder that only root may enter.
NO_HOME = shell("""! getent passwd 54321 >/dev/null || exit 77; chown -R 54321:54321 "$TMPDIR/.."
    exec setpriv --reuid 54321 --regid 54321 --clear-groups --inh-caps +dac_read_search \
        --ambient-caps +dac_read_search env -u HOME "$@" """)
ASCII = {"variables": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}}
ISOLATED = {"variables": {"PYTHONOPTIMIZE": "2", "PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT)}}
RECORD = str(ROOT / "results" / "evidence" / "agreement" / "suite" / ARCHIVE)


def kill(name: str) -> Callable:
    """Return a function that kills the first process of a run with this in its command line or title."""

    def kill_process(script) -> None:
        script.wait_for_iterations(ENOUGH)
        for process in psutil.Process(script.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if re.search(name, " ".join(process.cmdline()) or process.name()):
                    process.kill()
                    return
        raise AssertionError(f"no process {name}")

    return kill_process


def send(number: signal.Signals, after: int = ENOUGH) -> Callable:
    """Return a function that sends a signal after so many iterations; 0: while the run starts."""

    def send_signal(script) -> None:
        if after:
            script.wait_for_iterations(after)
        else:
            while not script.run_folders():
                time.sleep(0.01)
            time.sleep(1)
        script.process.send_signal(number)

    return send_signal


@dataclass(frozen=True)
class Fault:
    name: str
    command: str  # a configuration, or a verb
    expected: (
        str  # a regular expression: the reason in the record or, if none is kept, what is printed
    )
    inject: str = ""  # the value of --inject: actor, iteration and what happens
    flags: tuple[str, ...] = (*MANY, *CHAIN)
    action: Callable | None = None  # what is done from outside
    code: int = 1
    keeps: int = 4  # samples, at least
    where: dict[str, Any] = field(
        default_factory=dict
    )  # options of begin_run: prefix, variables, output
    is_quick: bool = (
        False  # `make test` provokes it too: one fault of each class, and those that take a second
    )


FAULTS = [
    Fault("an actor is killed", "rdt gloo", r"iteration 6: .*\bactor-1\b.* died", "actor-1:6:die"),
    Fault("an actor crashes in C", "torch multiprocessing", "iteration 6: actor-1 died", "actor-1:6:segfault",
          is_quick=True),
    Fault("an actor raises an error", "store refs", "iteration 6: actor-2 raised OSError: injected fault$",
          "actor-2:6:raise"),
    Fault("an actor hangs in C", "torch gloo", "iteration 6: .*actor-1 is stuck after iteration 5", "actor-1:6:hang",
          HANGS, is_quick=True),
    Fault("an actor's process is stopped", "torch mapped", r"iteration 6: .*3 s \(--timeout\).*actor-2.* stopped",
          "actor-2:6:stop", HANGS),
    Fault("a reader by NIXL is killed", "graph nixl-read", r"iteration 6: .*\bactor-2\b.* died", "actor-2:6:die"),
    Fault("a reader by NIXL is killed, without Ray", "peers nixl-read", "iteration 6: actor-2 died", "actor-2:6:die"),
    Fault("a producer is killed before NIXL reads from it", "graph nixl-read", r"iteration 6: .*\bactor-1\b.* died",
          "actor-2:6:kill-sender"),
    Fault("a producer is killed before NIXL reads from it, without Ray", "peers nixl-read",
          "iteration 6: actor-1 died", "actor-2:6:kill-sender", is_quick=True),
    Fault("one byte in a producer's memory is wrong", "graph nixl-read", "bytes differ from what was sent",
          "actor-1:6:flip", FEW),
    Fault("one byte in a producer's memory is wrong, without Ray", "peers nixl-read",
          "bytes differ from what was sent", "actor-1:6:flip", FEW),
    Fault("an actor cannot start", "store refs", "before the first iteration: .*actor-2.*OSError: injected fault",
          "actor-2:1:start", keeps=0),
    Fault("a tensor has another shape", "store refs", "bytes differ from what was sent", "actor-1:6:shape", FEW),
    Fault("a tensor is on another device", "graph pickle", "iteration 6: .*actor-2.*meta", "actor-1:6:device"),
    Fault("a field is missing", "store refs", "iteration 6: reference: expected a dict of", "policy:6:field",
          (*MANY, *FIELDS)),
    Fault("one byte of a message is wrong", "torch gloo", "bytes differ from what was sent", "actor-1:6:flip", FEW,
          is_quick=True),
    Fault("a message is sent again instead of the next one", "rdt gloo", "bytes differ from what was sent",
          "actor-1:6:stale", FEW),
    Fault("a message is lost", "torch multiprocessing", r"iteration 6: .*3 s \(--timeout\)", "actor-1:6:lost", HANGS),
    Fault("a message arrives twice", "torch gloo", "bytes differ from what was sent|sequence number",
          "actor-1:6:doubled", FEW),
    Fault("the driver's process hangs", "torch memcpy", r"iteration 6: .*3 s \(--timeout\)", "driver:6:hang", HANGS),
    Fault("the driver's process writes where it should not", "torch memcpy", "iteration 6: .*report",
          "driver:6:garbage"),
    Fault("a reader keeps its views", "graph zero-copy", r"3 s \(--timeout\).*actor-2 is stuck", "actor-2:6:keep",
          HANGS),
    Fault("a queue actor is killed", "store ref-queue", "Queue.* died", action=kill("ray::_QueueActor")),
    Fault("the raylet is killed", "graph shm", "the raylet of this node ended", action=kill("raylet/raylet")),
    Fault("the GCS is killed", "store refs", "the GCS ended", action=kill("gcs_server"), flags=HANGS),
    Fault("the driver's process is killed", "graph mapped", "the driver's process ended with signal SIGKILL",
          action=kill("dataflow.measure.driver")),
    Fault("the script is killed", "graph shm", "the run was killed", action=send(signal.SIGKILL),
          code=-signal.SIGKILL, keeps=0, is_quick=True),
    Fault("the guard is killed", "torch gloo", "driver's process ended|guard", action=kill("dataflow.workers.cleanup")),
    Fault("Ctrl-C during the start", "graph shm", "interrupted", action=send(signal.SIGINT, after=0), code=130,
          keeps=0),
    Fault("Ctrl-C at the end", "graph mapped", r"^interrupted after \d+", flags=("--warmup", "0", *FEW),
          action=send(signal.SIGINT, after=8), code=130),
    Fault("the terminal is closed", "torch multiprocessing", r"^interrupted after \d+ timed iterations",
          action=send(signal.SIGHUP), code=130),
    Fault("the object store is too small", "store refs", "error: store refs: refs needs .* of object store .* are free",
          flags=("--object-store-bytes", "80MiB"), code=2, keeps=0),
    Fault("/dev/shm is nearly full", "torch mapped", "needs .* of /dev/shm for messages .* are free",
          flags=("--iteration-bytes", "448MiB"), code=2, keeps=0, where=SMALL_MEMORY),
    Fault("the disk is full", "torch memcpy", "No space left", code=2, keeps=0, flags=THREE, is_quick=True,
          where=FULL_DISK | {"output": "/mnt/record.json"}),
    Fault("an allocation exceeds the limit of a process", "torch gloo", "before the first iteration: .*alloc",
          keeps=0, where=SMALL_LIMIT, flags=("--iteration-bytes", "4GiB", "--iterations", "3")),
    Fault("another run of the suite measures", "torch memcpy", "^Execution time: ", flags=THREE, code=0, keeps=0,
          where=TWICE),
    Fault("another program listens at the address", "store refs", "startup timed out .* --address", keeps=0,
          where=LISTENER, flags=("--address", "127.0.0.1:26399")),
]  # fmt: skip


def use(
    name: str,
    command: str,
    expected: str,
    *flags: str,
    code: int = 2,
    where: Mapping[str, Any] = {},
) -> Fault:
    """Return a hostile use of a command. It is quick if it does not measure a configuration."""
    is_quick = code > 0 or " " not in command
    return Fault(
        name, command, expected, flags=flags, code=code, keeps=0, where={**where}, is_quick=is_quick
    )


HOSTILE = [
    use("two model times of one actor", "torch memcpy", "several names separated by commas and each of them once",
        *THREE, "--model-seconds", "policy=1ms,policy=2ms"),
    use("a memory limit of a container", "torch mapped", "of memory under the limit of this container .* are free",
        *THREE[-2:], where=LITTLE_MEMORY),
    use("/dev/shm is read-only", "torch memcpy", "memcpy: /dev/shm is missing or cannot be written", *THREE,
        where=READ_ONLY_MEMORY),
    use("a user without a home", "torch mapped", "^Execution time: ", *THREE, code=0, where=NO_HOME),
    use("a user without a home, with Ray", "store refs", "^Execution time: ", *THREE, code=0, where=NO_HOME),
    use("several nodes without root", "nodes", "error: network namespaces need root", "--suite", "cluster",
        where=NO_HOME),
    use("PYTHONOPTIMIZE=2 and PYTHONSAFEPATH=1", "torch gloo", "^Execution time: ", *THREE, code=0, where=ISOLATED),
    use("PYTHONOPTIMIZE=2 and PYTHONSAFEPATH=1 with Ray", "store refs", "^Execution time: ", *THREE, code=0,
        where=ISOLATED),
    use("--help with PYTHONOPTIMIZE=2", "run", "new file for the record", "--help", code=0, where=ISOLATED),
    use("charts in an ASCII locale", "report", "^charts: .*report.html", RECORD, "--html", code=0, where=ASCII),
    use("a trace in an ASCII locale", "torch memcpy", "^Execution time: ", *THREE, "--trace", code=0, where=ASCII),
    use("charts on a full disk", "report", "cannot write /mnt/x.* .No space left on device.: give another --output",
        RECORD, "--html", where=FULL_DISK | {"output": "/mnt/x"}),
]  # fmt: skip

# Faults of several nodes, which tests/runs/test_cluster.py provokes: their names, and what their messages must say.
NODE_FAULTS = {
    "an actor on another node is killed": "reward on node 1 died",
    "the link between nodes is cut": "reference, reward|on node",
}

TABLES = ("faults", "hostile")
COLUMNS = (
    Column("case", lambda row: row["name"], is_text=True),
    Column("configuration or command", lambda row: row["configuration"], is_text=True),
    Column("message", lambda row: f"`{row['message']}`", is_text=True),
    Column("exit code", lambda row: str(row["code"])),
    Column("seconds", lambda row: f"{row['seconds']:.0f}"),
    Column("left behind", lambda row: str(len(row["left"]))),
    Column("measured", lambda row: describe_age(row.get("origin")), is_text=True),
)


def describe_age(origin: Mapping[str, Any] | None) -> str:
    """Return the day and the commit of a row; a dash if an older version of this program has made it."""
    if origin is None or origin["git_commit"] is None:
        return "-"
    changed = " with changes" if origin["git_dirty"] else ""
    return f"{origin['day']}, {origin['git_commit'][:10]}{changed}"


def store_result(
    table: str, name: str, command: str, message: str, code: int, seconds: float, left: Iterable
) -> None:
    """Put a row into the file of a table below the folder in FAULT_RESULTS, without the folders of this machine.

    It replaces the row of an earlier run. Tests that run at the same time wait for each other.
    """
    if folder := os.environ.get("FAULT_RESULTS"):
        message = re.sub(rf"{ROOT}/|/tmp/[^ ]*/", "", message)
        row = {"name": name, "configuration": command, "message": message, "code": code,
               "seconds": round(seconds, 1), "left": [*map(str, left)], "origin": describe_origin()}  # fmt: skip
        with open(Path(folder) / f"{table}.jsonl", "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            kept = [line for line in file if json.loads(line)["name"] != name]
            file.truncate(0)
            file.writelines([*kept, json.dumps(row) + "\n"])


def load_rows(table: str) -> list[dict[str, Any]]:
    """Return the stored rows of a table."""
    path = EVIDENCE / f"{table}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def drop_old_rows(table: str, folder: Path = EVIDENCE) -> None:
    """Remove the rows of cases that do not exist any more from the file of a table.

    A row of a case that was skipped stays: that this machine cannot provoke it says nothing about its result.
    """
    cases = {"faults": FAULTS, "hostile": HOSTILE}[table]
    names = {case.name for case in cases}
    if table == "faults":
        names |= set(NODE_FAULTS)
    path = folder / f"{table}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["name"] in names]
    if kept != lines:
        replace(path, b"".join(kept))


def write_tables(folder: Path) -> None:
    """Write a row per line of each file, which is a JSON object, between the marks with the name of the file."""
    built = []
    for name in TABLES:
        rows = load_rows(name)
        rows.sort(key=lambda row: row["name"])
        built.append(Section(name, "", table=make_table(rows, COLUMNS)))
    rewrite_pages(folder, built)


if __name__ == "__main__":
    for each in TABLES:
        drop_old_rows(each)
    write_tables(ROOT)
