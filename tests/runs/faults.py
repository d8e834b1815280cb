"""List the faults that a run must survive: how each is provoked, and what the run says."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil
from conftest import ROOT

MANY = ("--warmup", "0", "--iterations", "1000000")
CHAIN = ("--flow", "chain", "--actors", "2")
FIELDS = ("--flow", "grpo", "--batch-size", "2", "--prompt-len", "8", "--response-len", "8")
SHORT = ("--timeout", "3")
ENOUGH = 6  # iterations before something happens
# A shell in a mount namespace of its own, in which a folder is a small file system.
SMALL_MEMORY = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=90m none /dev/shm; exec "$@"', "sh")

FULL_DISK = ("unshare", "--mount", "sh", "-c",
             'mount -t tmpfs -o size=8k none /mnt; cat /dev/zero > /mnt/full; exec "$@"', "sh")  # fmt: skip
SMALL_LIMIT = ("sh", "-c", 'ulimit -v 3000000; exec "$@"', "sh")
# Two runs; exactly one of them says that it waits.
TWICE = (
    "sh",
    "-c",
    """"$@" --output "$TMPDIR/other" >"$TMPDIR/1" & "$@" >"$TMPDIR/2"; code=$?; wait $! || code=$?
         [ $(cat "$TMPDIR/1" "$TMPDIR/2" | grep -c "^waiting until another measurement") = 1 ] || code=3
         cat "$TMPDIR/2"; rm "$TMPDIR/other" "$TMPDIR/1" "$TMPDIR/2"; exit $code""",
    "sh",
)
LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', 26399)); time.sleep(300)"
LISTENER = ("sh", "-c", f'{sys.executable} -c "{LISTEN}" & "$@"; code=$?; kill $!; exit $code', "sh")


def kill(name: str) -> Callable:
    """Return a function that kills the first process of a run with this in its command line or title."""

    def kill_process(script) -> None:
        for process in psutil.Process(script.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if re.search(name, " ".join(process.cmdline()) or process.name()):
                    process.kill()
                    return
        raise AssertionError(f"no process {name}")

    return kill_process


def send(number: signal.Signals) -> Callable:
    return lambda script: script.process.send_signal(number)


def store_result(name: str, configuration: str, message: str, code: int, seconds: float, left: list[str]) -> None:
    """Append a line to the file of `make faults`, which is published: without the folders of this machine."""
    message, configuration = (re.sub(rf"{ROOT}/|/tmp/pytest-[^ ]*/", "", text) for text in (message, configuration))
    if path := os.environ.get("FAULT_RESULTS"):
        row = {"name": name, "configuration": configuration, "message": message, "code": code,
               "seconds": round(seconds, 1), "left": left}  # fmt: skip
        with open(path, "a") as file:
            file.write(json.dumps(row) + "\n")


@dataclass(frozen=True)
class Fault:
    name: str
    runtime: str
    transport: str
    expected: str  # a regular expression: the message, or the reason in the record
    inject: str = ""  # the value of --inject: actor, iteration and what happens
    flags: tuple[str, ...] = (*MANY, *CHAIN)
    action: Callable | None = None  # what is done from outside
    after: int = ENOUGH  # iterations; 0: while the run starts
    code: int = 1
    keeps: int = 4  # samples, at least
    prefix: tuple[str, ...] = ()  # of the command
    output: str = ""  # the file of the record, instead of a new one
    is_quick: bool = False  # `make test` provokes it too: one fault of each class


FAULTS = [
    Fault("an actor is killed", "rdt", "gloo", r"iteration 6: .*\bactor-1\b.* died", "actor-1:6:die"),
    Fault("an actor exits", "torch", "mapped", r"iteration 6: actor-1 died", "actor-1:6:exit"),
    Fault("an actor crashes in C", "torch", "multiprocessing", r"iteration 6: actor-1 died", "actor-1:6:segfault",
          is_quick=True),
    Fault("an actor raises an error", "store", "refs", "iteration 6: actor-2 raised OSError: injected fault$",
          "actor-2:6:raise", is_quick=True),
    Fault("an actor hangs in Python", "graph", "shm", r"iteration 6: .*3 s \(--timeout\).*actor-1 is stuck",
          "actor-1:6:sleep", (*MANY, *CHAIN, *SHORT)),
    Fault("an actor hangs in C", "torch", "gloo", r"iteration 6: .*actor-1 is stuck after iteration 5",
          "actor-1:6:hang", (*MANY, *CHAIN, *SHORT), is_quick=True),
    Fault("an actor's process is stopped", "torch", "mapped", r"iteration 6: .*3 s \(--timeout\).*actor-2.* stopped",
          "actor-2:6:stop", (*MANY, *CHAIN, *SHORT)),
    Fault("an actor cannot start", "store", "refs", "before the first iteration: .*actor-2.*OSError: injected fault",
          "actor-2:1:start", keeps=0),
    Fault("a tensor has another shape", "store", "refs", "bytes differ from what was sent", "actor-1:6:shape",
          ("--iterations", "8", *CHAIN)),
    Fault("a tensor has another dtype", "torch", "multiprocessing", "bytes differ from what was sent",
          "actor-1:6:dtype", ("--iterations", "8", *CHAIN)),
    Fault("a tensor is on another device", "graph", "pickle", "iteration 6: .*actor-2.*meta", "actor-1:6:device"),
    Fault("a field is missing", "store", "refs", "iteration 6: reference: expected a dict of",
          "policy:6:field", (*MANY, *FIELDS)),
    Fault("one byte of a message is wrong", "torch", "gloo", "bytes differ from what was sent", "actor-1:6:flip",
          ("--iterations", "8", *CHAIN), is_quick=True),
    Fault("a message is sent again instead of the next one", "rdt", "gloo", "bytes differ from what was sent",
          "actor-1:6:stale", ("--iterations", "8", *CHAIN)),
    Fault("a message is lost", "torch", "multiprocessing", r"iteration 6: .*3 s \(--timeout\)", "actor-1:6:lost",
          (*MANY, *CHAIN, *SHORT)),
    Fault("a message arrives twice", "torch", "gloo", "bytes differ from what was sent|sequence number",
          "actor-1:6:doubled", ("--iterations", "8", *CHAIN)),
    Fault("the driver's process is killed", "torch", "memcpy", "the driver's process ended with signal SIGKILL",
          "driver:6:die"),
    Fault("the driver's process hangs", "torch", "memcpy", r"iteration 6: .*3 s \(--timeout\)", "driver:6:hang",
          (*MANY, *CHAIN, *SHORT)),
    Fault("the driver's process writes where it should not", "torch", "memcpy", "iteration 6: .*report",
          "driver:6:garbage"),
    Fault("a reader keeps its views", "graph", "zero-copy", r"3 s \(--timeout\).*actor-2 is stuck", "actor-2:6:keep",
          (*MANY, *CHAIN, *SHORT)),
    Fault("a queue actor is killed", "store", "ref-queue", "Queue.* died", action=kill("ray::_QueueActor")),
    Fault("the raylet is killed", "graph", "shm", "the raylet of this node ended", action=kill("raylet/raylet")),
    Fault("the GCS is killed", "store", "refs", "the GCS ended", action=kill("gcs_server"),
          flags=(*MANY, *CHAIN, *SHORT)),
    Fault("the worker is killed", "graph", "mapped", "the driver's process ended with signal SIGKILL",
          action=kill("dataflow.measure.driver")),
    Fault("the script is killed", "graph", "shm", "the run was killed", action=send(signal.SIGKILL),
          code=-signal.SIGKILL, keeps=0, is_quick=True),
    Fault("the guard is killed", "torch", "gloo", "driver's process ended|guard",
          action=kill("dataflow.workers.guard")),
    Fault("Ctrl-C during the start", "graph", "shm", "interrupted", action=send(signal.SIGINT), after=0, code=130,
          keeps=0),
    Fault("Ctrl-C during iterations", "graph", "zero-copy", r"^interrupted after \d+ timed iterations",
          action=send(signal.SIGINT), code=130),
    Fault("Ctrl-C at the end", "rdt", "mapped", r"^interrupted after \d+",
          flags=("--warmup", "0", "--iterations", "8", *CHAIN), action=send(signal.SIGINT), after=8, code=130),
    Fault("SIGTERM during the start", "torch", "gloo", "interrupted", action=send(signal.SIGTERM), after=0, code=130,
          keeps=0),
    Fault("SIGTERM during iterations", "torch", "multiprocessing", r"^interrupted after \d+ timed iterations",
          action=send(signal.SIGTERM), code=130),
    Fault("the object store is too small", "store", "refs", r"error: refs needs .* of object store .* are free",
          flags=("--object-store-bytes", "80MiB"), code=2, keeps=0),
    Fault("more memory is needed than there is", "torch", "gloo", r"error: gloo needs .* of memory .* are free",
          flags=("--iteration-bytes", "900GiB"), code=2, keeps=0),
    Fault("/dev/shm is nearly full", "torch", "mapped", r"needs .* of /dev/shm for messages .* are free",
          flags=("--iteration-bytes", "448MiB"), code=2, keeps=0, prefix=SMALL_MEMORY),
    Fault("the record's folder is read-only", "torch", "memcpy", "cannot write|Read-only", code=2, keeps=0,
          flags=("--iterations", "3"), output="/proc/record.json"),
    Fault("the disk is full", "torch", "memcpy", "No space left", code=2, keeps=0, prefix=FULL_DISK,
          flags=("--iterations", "3"), output="/mnt/record.json", is_quick=True),
    Fault("the record exists already", "torch", "memcpy", "exists", code=2, keeps=0,
          flags=("--iterations", "3"), output=__file__),
    Fault("an allocation exceeds the limit of a process", "torch", "gloo", "before the first iteration: .*alloc",
          keeps=0, prefix=SMALL_LIMIT, flags=("--iteration-bytes", "4GiB", "--iterations", "3")),
    Fault("another run of the suite measures", "torch", "memcpy", "^ok$", code=0, keeps=0, prefix=TWICE,
          flags=("--iterations", "3")),
    Fault("another program listens at the address", "store", "refs", "startup timed out .* --address", keeps=0,
          prefix=LISTENER, flags=("--address", "127.0.0.1:26399")),
    Fault("no cluster answers at the address", "store", "refs", "no answer .*: give ip:port of a running cluster",
          flags=("--address", "127.0.0.1:1"), code=2, keeps=0),
]  # fmt: skip
