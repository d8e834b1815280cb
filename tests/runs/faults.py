"""List the faults that a run must survive, and hostile uses of the commands: how each is provoked, and what it says."""

import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
from conftest import ROOT

MANY = ("--warmup", "0", "--iterations", "1000000")
CHAIN = ("--flow", "chain", "--actors", "2")
FEW = ("--iterations", "8", *CHAIN)
HANGS = (*MANY, *CHAIN, "--timeout", "3")
FIELDS = ("--flow", "grpo", "--batch-size", "2", "--prompt-len", "8", "--response-len", "8")
THREE = ("--batch-size", "8", "--prompt-seq-len", "64", "--iterations", "3")
ENOUGH = 6  # iterations before something happens
CANNOT_PREPARE = 77  # exit code of LITTLE_MEMORY


def mount(options: str, folder: str, command: str = "") -> tuple[str, ...]:
    """Return a shell in a mount namespace of its own, in which a folder is a small file system."""
    return ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {options} none {folder}; {command} exec "$@"', "sh")


SMALL_MEMORY, READ_ONLY_MEMORY = mount("size=90m", "/dev/shm"), mount("ro", "/dev/shm")
FULL_DISK = mount("size=8k", "/mnt", "cat /dev/zero > /mnt/full 2>/dev/null;")
SMALL_LIMIT = ("sh", "-c", 'ulimit -v 3000000; exec "$@"', "sh")
# A control group of version 1.
LITTLE_MEMORY = ("sh", "-c", """group=/sys/fs/cgroup/memory/hostile-$$; mkdir $group || exit 77
    echo 400M > $group/memory.limit_in_bytes; (echo 0 > $group/cgroup.procs; exec "$@"); code=$?
    rmdir $group; exit $code""", "sh")  # fmt: skip
# Two runs; exactly one of them says that it waits.
TWICE = ("sh", "-c", """"$@" --output "$TMPDIR/other" >"$TMPDIR/1" & "$@" >"$TMPDIR/2"; code=$?; wait $! || code=$?
    [ $(cat "$TMPDIR/1" "$TMPDIR/2" | grep -c "^waiting until another measurement") = 1 ] || code=3
    cat "$TMPDIR/2"; rm "$TMPDIR/other" "$TMPDIR/1" "$TMPDIR/2"; exit $code""", "sh")  # fmt: skip
LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', 26399)); time.sleep(300)"
LISTENER = ("sh", "-c", f'{sys.executable} -c "{LISTEN}" & "$@"; code=$?; kill $!; exit $code', "sh")
NO_HOME = ("setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", "--inh-caps=+dac_read_search",
           "--ambient-caps=+dac_read_search", "env", "-u", "HOME")  # fmt: skip
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ISOLATED = {"PYTHONOPTIMIZE": "2", "PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT)}
RECORD = str(min((ROOT / "results" / "published" / "hops").glob("*.json*")))


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


@dataclass(frozen=True)
class Fault:
    name: str
    command: str  # a configuration, or a verb
    expected: str  # a regular expression: the reason in the record or, if none is kept, what is printed
    inject: str = ""  # the value of --inject: actor, iteration and what happens
    flags: tuple[str, ...] = (*MANY, *CHAIN)
    action: Callable | None = None  # what is done from outside
    after: int = ENOUGH  # iterations; 0: while the run starts
    code: int = 1
    keeps: int = 4  # samples, at least
    prefix: tuple[str, ...] = ()  # of the command
    variables: dict[str, str] = field(default_factory=dict)
    output: str = ""  # the file of the record, instead of a new one
    is_quick: bool = (
        False  # `make test` provokes it too: one fault of each class, and what takes no longer than a second
    )


FAULTS = [
    Fault("an actor is killed", "rdt gloo", r"iteration 6: .*\bactor-1\b.* died", "actor-1:6:die"),
    Fault("an actor crashes in C", "torch multiprocessing", "iteration 6: actor-1 died", "actor-1:6:segfault",
          is_quick=True),
    Fault("an actor raises an error", "store refs", "iteration 6: actor-2 raised OSError: injected fault$",
          "actor-2:6:raise", is_quick=True),
    Fault("an actor hangs in C", "torch gloo", "iteration 6: .*actor-1 is stuck after iteration 5", "actor-1:6:hang",
          HANGS, is_quick=True),
    Fault("an actor's process is stopped", "torch mapped", r"iteration 6: .*3 s \(--timeout\).*actor-2.* stopped",
          "actor-2:6:stop", HANGS),
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
    Fault("the worker is killed", "graph mapped", "the driver's process ended with signal SIGKILL",
          action=kill("dataflow.measure.driver")),
    Fault("the script is killed", "graph shm", "the run was killed", action=send(signal.SIGKILL),
          code=-signal.SIGKILL, keeps=0, is_quick=True),
    Fault("the guard is killed", "torch gloo", "driver's process ended|guard", action=kill("dataflow.workers.cleanup")),
    Fault("Ctrl-C during the start", "graph shm", "interrupted", action=send(signal.SIGINT), after=0, code=130,
          keeps=0),
    Fault("Ctrl-C at the end", "graph mapped", r"^interrupted after \d+", flags=("--warmup", "0", *FEW),
          action=send(signal.SIGINT), after=8, code=130),
    Fault("the terminal is closed", "torch multiprocessing", r"^interrupted after \d+ timed iterations",
          action=send(signal.SIGHUP), code=130),
    Fault("the object store is too small", "store refs", "error: store refs: refs needs .* of object store .* are free",
          flags=("--object-store-bytes", "80MiB"), code=2, keeps=0),
    Fault("/dev/shm is nearly full", "torch mapped", "needs .* of /dev/shm for messages .* are free",
          flags=("--iteration-bytes", "448MiB"), code=2, keeps=0, prefix=SMALL_MEMORY),
    Fault("the disk is full", "torch memcpy", "No space left", code=2, keeps=0, prefix=FULL_DISK, flags=THREE,
          output="/mnt/record.json", is_quick=True),
    Fault("an allocation exceeds the limit of a process", "torch gloo", "before the first iteration: .*alloc",
          keeps=0, prefix=SMALL_LIMIT, flags=("--iteration-bytes", "4GiB", "--iterations", "3")),
    Fault("another run of the suite measures", "torch memcpy", "^Execution time: ", code=0, keeps=0, prefix=TWICE,
          flags=THREE),
    Fault("another program listens at the address", "store refs", "startup timed out .* --address", keeps=0,
          prefix=LISTENER, flags=("--address", "127.0.0.1:26399")),
]  # fmt: skip


def use(name: str, command: str, expected: str, *flags: str, code: int = 2, **changes) -> Fault:
    """Return a hostile use of a command, of which `make test` has those that do not measure."""
    return Fault(name, command, expected, flags=flags, code=code, keeps=0, **{"is_quick": True} | changes)


HOSTILE = [
    use("two model times of one actor", "torch memcpy", "several names separated by commas and each of them once",
        *THREE, "--model-seconds", "policy=1ms,policy=2ms"),
    use("a memory limit of a container", "torch mapped", "of memory under the limit of this container .* are free",
        *THREE[-2:], prefix=LITTLE_MEMORY),
    use("/dev/shm is read-only", "torch memcpy", "memcpy: /dev/shm is missing or cannot be written", *THREE,
        prefix=READ_ONLY_MEMORY),
    use("a user without a home", "torch memcpy", "memcpy: --copy-in", *THREE, "--copy-in", prefix=NO_HOME),
    use("several nodes without root", "nodes", "error: network namespaces need root", prefix=NO_HOME),
    use("PYTHONOPTIMIZE=2 and PYTHONSAFEPATH=1", "torch gloo", "^Execution time: ", *THREE, code=0,
        variables=ISOLATED, is_quick=False),
    use("PYTHONOPTIMIZE=2 and PYTHONSAFEPATH=1 with Ray", "store refs", "^Execution time: ", *THREE, code=0,
        variables=ISOLATED, is_quick=False),
    use("--help with PYTHONOPTIMIZE=2", "run", "new file for the record", "--help", code=0, variables=ISOLATED),
    use("charts in an ASCII locale", "report", "^charts: .*report.html", RECORD, "--html", code=0, variables=ASCII),
    use("a trace in an ASCII locale", "torch memcpy", "^Execution time: ", *THREE, "--trace", code=0, variables=ASCII,
        is_quick=False),
    use("charts on a full disk", "report", "cannot write /mnt/x.* .No space left on device.: give another --output",
        RECORD, "--html", prefix=FULL_DISK, output="/mnt/x"),
]  # fmt: skip
