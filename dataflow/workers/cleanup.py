"""Create the folders of a run, start its worker, and remove every process and file of the run, whatever happens.

The guard (guard.py) is the parent of the worker. It cleans up when the supervisor leaves the block of RunFolder or has
been killed. If the guard has been killed, the supervisor cleans up. If both have, the next run of any script does.
"""

import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import psutil

from dataflow.errors import RunFailed
from dataflow.units import format_bytes
from dataflow.workers.guard import become_subreaper

ROOT = Path(__file__).resolve().parents[2]
RUN_VARIABLE = "DATA_FLOW_RUN"  # environment variable of the processes of a run: the name of its folder
PREFIX = "dataflow-"
SHARED_MEMORY = Path("/dev/shm")
CLEAN_SECONDS = 10  # for processes to end after SIGKILL; some must free much memory first
MIN_FREE_BYTES = 16 * 2**20  # of the temporary folder, for the files of a run and the logs of Ray


class RunFolder:
    """The folders of a run, `folder` and `shared` (in /dev/shm), and its worker. Leaving the block ends the run.

    Several blocks may be open at the same time in the threads of one process.
    """

    def __init__(self) -> None:
        # Ray puts Unix sockets below this folder, and their paths may have 107 characters at most.
        parent = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) < 22 else "/tmp")
        self.folder = parent / f"{PREFIX}{secrets.token_hex(4)}"
        self.shared = SHARED_MEMORY / self.folder.name
        self.pid = 0  # of the worker
        self.poll_handle = -1  # a file descriptor that becomes readable when the worker has ended
        self._guard: subprocess.Popen | None = None
        self._guard_started = float("inf")  # in seconds since 1970
        self._returncode: int | None = None

    def __enter__(self) -> "RunFolder":
        free_bytes = shutil.disk_usage(self.folder.parent).free
        if free_bytes < MIN_FREE_BYTES:
            raise RunFailed(f"{self.folder.parent} has {format_bytes(free_bytes)} free, and a run needs "
                            f"{format_bytes(MIN_FREE_BYTES)}: free some, or set TMPDIR to another folder")  # fmt: skip
        self.folder.mkdir(mode=0o700)
        (self.folder / "namespace").write_text(_pid_namespace())
        (self.folder / "owner").write_text(f"{_identify(os.getpid())}\n")
        self.shared.mkdir(mode=0o700)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the run. Raise RunFailed if processes of it cannot be ended; only say so if an error ends the block."""
        if self._guard is not None:
            self._socket.close()
            with suppress(subprocess.TimeoutExpired):
                if self._guard.wait(2 * CLEAN_SECONDS) == 0:
                    return
            self._guard.kill()  # it was stopped, hangs, or could not end all processes
            self._guard.wait()
        if left := clean(self.folder, lambda: self._find_adopted() + find_marked(self.folder)):
            message = f"processes of the run cannot be ended, and disturb the next run: {', '.join(left)}"
            if kind is None:
                raise RunFailed(message)
            print(f"error: {message}", file=sys.stderr)

    def start_worker(self, command: list[str], cwd: Path, environment: dict[str, str]) -> None:
        """Start the run's worker below a guard, in a session of its own. Raise RunFailed if it cannot be started.

        The command has the full path of the interpreter. The environment is added to that of this process.
        """
        become_subreaper()  # if the guard is killed, its children become children of this process
        variables = os.environ | environment | {RUN_VARIABLE: self.folder.name, "TMPDIR": str(self.folder)}
        # The processes of a run import from their current folder, and Ray does not start with PYTHONOPTIMIZE=2.
        for name in ("PYTHONSAFEPATH", "PYTHONOPTIMIZE"):
            variables.pop(name, None)
        self._socket, guard_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with guard_socket:
            guard = [sys.executable, "-m", "dataflow.workers.guard", str(self.folder), str(guard_socket.fileno())]
            self._guard = subprocess.Popen(
                [*guard, str(cwd), *command], cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=sys.stderr,
                process_group=0, pass_fds=[guard_socket.fileno()],
            )  # fmt: skip
        self._guard_started = psutil.Process(self._guard.pid).create_time()
        with (self.folder / "owner").open("a") as owner:
            owner.write(f"{_identify(self._guard.pid)}\n")
        message = self._socket.recv(32)
        if not message:
            raise RunFailed("the worker cannot be started: see the error above")
        self.pid, self.poll_handle = int(message), self._socket.fileno()

    def returncode(self) -> int | None:
        """Return None while the worker runs, then its exit code, or minus the number of the signal that ended it."""
        if self._returncode is None and select.select([self.poll_handle], [], [], 0)[0]:
            message = self._socket.recv(32)
            self._returncode = int(message) if message else -signal.SIGKILL  # the guard was killed: the run is over
        return self._returncode

    def _find_adopted(self) -> list[psutil.Process]:
        """Return the former children of the guard, which are now children of this process, and their descendants."""
        adopted: list[psutil.Process] = []  # they have sessions of their own; other children of this process do not
        for child in psutil.Process().children():
            with suppress(psutil.Error, ProcessLookupError):  # it has ended
                if os.getsid(child.pid) != os.getsid(0) and child.create_time() > self._guard_started:
                    adopted += [child, *child.children(recursive=True)]
        return adopted


def clean(folder: Path, find: Callable[[], list[psutil.Process]] | None = None) -> list[str]:
    """Kill the processes of a run that `find` (default: `find_marked`) returns, until there are none.

    Then remove the folders of the run, and the semaphores of its channels, which are named after these processes.
    Return the processes that have not ended after CLEAN_SECONDS, for an error message.
    """
    find = find or partial(find_marked, folder)
    pids = set(map(int, _read_lines(folder / "pids")))
    deadline = time.monotonic() + CLEAN_SECONDS
    while (processes := find()) and time.monotonic() < deadline:
        for process in processes:
            pids.add(process.pid)
            with suppress(psutil.Error):  # it has ended
                process.kill()
        psutil.wait_procs(processes, timeout=0.2)  # it also reaps children of this process
    for path in SHARED_MEMORY.glob("sem.*-*"):
        creator = re.match(r"sem\.(?:obj|hdr)(\d+)-", path.name)  # Ray leaves two per channel
        if (creator and int(creator[1]) in pids) or path.name.startswith(f"sem.{folder.name}-"):
            unlink_semaphores([path.name])
    unlink_semaphores(_read_lines(folder / "semaphores"))
    shutil.rmtree(SHARED_MEMORY / folder.name, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    return [str(process).removeprefix("psutil.") for process in set(processes) if process_status(process.pid)]


def find_marked(folder: Path) -> list[psutil.Process]:
    """Return the processes with the environment variable of a run, which a title overwrites, and their descendants."""
    marked = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or belongs to another user
            if process.pid != os.getpid() and process.environ().get(RUN_VARIABLE) == folder.name:
                marked += [process, *process.children(recursive=True)]
    return [process for process in marked if process_status(process.pid)]


def process_status(pid: int) -> str | None:
    """Return the state of a process; None if it has ended."""
    with suppress(psutil.Error):
        status = psutil.Process(pid).status()
        return None if status == psutil.STATUS_ZOMBIE else status
    return None


def remove_dead_runs() -> None:
    """Remove what is left of this user's runs whose supervisor and guard have both been killed.

    Runs of another PID namespace, of another host that shares the folder, and of an earlier boot stay: whether their
    processes are alive is not known here.
    """
    for parent in {Path(tempfile.gettempdir()), Path("/tmp")}:
        for folder in parent.glob(f"{PREFIX}*"):
            with suppress(OSError, ValueError):  # another process removes it, or has only just made it
                owners = (folder / "owner").read_text().splitlines()
                is_here = (folder / "namespace").read_text() == _pid_namespace()
                alive = [owner for owner in owners if _identify(int(owner.split()[0])) == owner]
                if owners and is_here and not alive and folder.stat().st_uid == os.getuid():
                    clean(folder)


def remember(folder: Path, kind: Literal["pids", "gcs", "semaphores"], values: Iterable[int | str]) -> None:
    """Store the ids of all processes, the id of Ray's GCS, or the names of semaphores in a file of the run folder."""
    (folder / kind).write_text("".join(f"{value}\n" for value in values))


def channel_semaphores() -> list[str]:
    """Return the names of the channels' semaphores that this process has open.

    The process that creates a semaphore maps it under a temporary name, so they are found by their inodes.
    """
    lines = Path("/proc/self/maps").read_text().splitlines()
    inodes = {int(line.split()[4]) for line in lines if "/sem." in line}
    return [entry.name for entry in os.scandir(SHARED_MEMORY) if entry.inode() in inodes]


def unlink_semaphores(names: Iterable[str]) -> None:
    """Remove the names of semaphores; a process that has one open keeps it."""
    for name in names:
        with suppress(OSError):  # it is gone, or another user's, whose process had the same id
            (SHARED_MEMORY / name).unlink()


def _read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _identify(pid: int) -> str:
    """Return the id of a process and its start in clock ticks since boot, because ids are used again."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] != "Z":
            return f"{pid} {fields[19]}"
    return f"{pid} has ended"


def _pid_namespace() -> str:
    """Return the boot of the kernel, the host and the namespace in which this process sees the ids of processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
