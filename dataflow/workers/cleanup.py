# SPDX-License-Identifier: Apache-2.0
"""Create the folders of a run, start its driver process, and remove every process and file of it, whatever happens.

The guard is the parent of the driver process, and the kernel makes every process of the run that loses its parent a
child of the guard. The guard cleans up when the supervisor leaves the block of RunFolder or has been killed. If the
guard has been killed, the supervisor cleans up. If both have, the next run does.

    python3 -m dataflow.workers.cleanup RUN_FOLDER SOCKET DIRECTORY COMMAND...     runs the guard
"""

import ctypes
import fcntl
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

import psutil

from common.cuda_files import find_cuda_files
from common.temporary import find_temporary_folder
from dataflow.errors import RunFailed
from dataflow.workers.ray_internals import CHANNEL_SEMAPHORES

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "data-flow-"
SHARED_MEMORY = Path("/dev/shm")
CLEAN_SECONDS = 10  # for processes to end after SIGKILL; some must free much memory first
MIN_FREE_BYTES = 16 * 2**20  # of the temporary folder, for the files of a run and the logs of Ray
MIN_MARK = 2**62  # microseconds of CPU time: more than any process uses
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


class RunFolder:
    """The folders of a run, `folder` and `shared` (in /dev/shm), and its driver process, which ends with the block."""

    def __init__(self) -> None:
        self.folder = find_temporary_folder() / f"{PREFIX}{secrets.token_hex(4)}"
        self.shared = SHARED_MEMORY / self.folder.name
        self.pid = 0  # of the driver process
        # A file descriptor that becomes readable when the driver process has ended.
        self.poll_handle = -1
        self._guard: subprocess.Popen | None = None

    def __enter__(self) -> "RunFolder":
        """Make both folders, and lock the first one: a run whose folder is locked is alive. No process is started.

        Raise RunFailed if the temporary folder is nearly full, or if the one in shared memory cannot be made.
        """
        if shutil.disk_usage(self.folder.parent).free < MIN_FREE_BYTES:
            raise RunFailed(
                f"{self.folder.parent} is nearly full: free 16 MiB, or set TMPDIR to another folder"
            )
        self.folder.mkdir(mode=0o700)
        self._lock = os.open(self.folder, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        try:
            self.shared.mkdir(mode=0o700)  # last, because remove_dead_runs looks for it
        except OSError as error:
            # Nothing else would ever remove this folder.
            os.close(self._lock)
            self.folder.rmdir()
            raise RunFailed(
                f"{self.shared} cannot be made ({error.strerror}): check the space and rights of {SHARED_MEMORY}"
            ) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End all processes of the run, and remove its folders and semaphores, by the guard if it works.

        Raise RunFailed if processes cannot be ended. If an error ends the block, only print that.
        """
        os.close(self._lock)
        if self._guard is not None:
            self._socket.close()
            with suppress(subprocess.TimeoutExpired):
                if self._guard.wait(2 * CLEAN_SECONDS) == 0:
                    return
            self._guard.kill()  # it was stopped, hangs, or could not end all processes
            self._guard.wait()
        if left := clean(self.folder):
            message = (
                f"processes of the run cannot be ended, and disturb the next run: {', '.join(left)}"
            )
            if kind is None:
                raise RunFailed(message)
            print(f"error: {message}", file=sys.stderr)

    def start_driver(self, command: list[str], cwd: Path, environment: dict[str, str]) -> None:
        """Start the driver process below a guard, in a session of its own, and wait for its process id.

        The command has the full path of the interpreter. The environment is added to that of this process. Raise
        RunFailed if the guard ends before it knows the id, as for a command that does not exist. A driver that ends
        at once was started: its exit code tells so.
        """
        become_subreaper()  # if the guard is killed, its children become children of this process
        variables = os.environ | environment | {"TMPDIR": str(self.folder)}
        # The processes of a run import from their current folder, and Ray does not start with PYTHONOPTIMIZE=2.
        for name in ("PYTHONSAFEPATH", "PYTHONOPTIMIZE"):
            variables.pop(name, None)
        self._socket, guard_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with guard_socket:
            guard = [
                sys.executable,
                "-m",
                "dataflow.workers.cleanup",
                str(self.folder),
                str(guard_socket.fileno()),
            ]
            self._guard = subprocess.Popen(
                [*guard, str(cwd), *command],
                cwd=ROOT,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                process_group=0,
                pass_fds=[guard_socket.fileno()],
            )
        pid_text = self._socket.recv(32)
        if not pid_text:
            raise RunFailed("the driver process cannot be started: see the error above")
        self.pid = int(pid_text)
        self.poll_handle = self._socket.fileno()

    def returncode(self) -> int:
        """Wait for the end of the driver process. Return its exit code, or minus the signal that ended it."""
        message = self._socket.recv(32)
        return int(message) if message else -signal.SIGKILL  # the guard was killed: the run is over


def run_guard() -> None:
    """Start the driver process, and end the whole run when the supervisor closes its end of the socket or has died.

    The arguments of this program are the run folder, the file descriptor of the socket, the folder and the command of
    the driver process. Its id, and later its exit code, are written to the socket.
    """
    folder = Path(sys.argv[1])
    handle = int(sys.argv[2])
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)  # until this process ends
    # It limits nothing: `clean` knows the processes of the run by it.
    resource.setrlimit(resource.RLIMIT_RTTIME, (mark_of(folder), resource.RLIM_INFINITY))
    os.set_inheritable(handle, False)
    os.chdir(sys.argv[3])
    become_subreaper()
    driver = os.posix_spawn(sys.argv[4], sys.argv[4:], os.environ, setsid=True)

    def send(number: int) -> None:
        with suppress(BrokenPipeError):  # the supervisor has closed its end, or died
            os.write(handle, str(number).encode())

    def reap_children() -> None:
        """Wait for every child, so that no zombie stays, until there is none."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, 0)
                if pid == driver:
                    send(os.waitstatus_to_exitcode(status))

    send(driver)
    # Only the supervisor ends the guard.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=reap_children, daemon=True).start()
    with suppress(ConnectionResetError):  # the supervisor has not read everything
        os.read(handle, 1)  # returns when the other end is closed
    if clean(folder):
        sys.exit(1)  # the supervisor inherits the processes that are left, and names them


def become_subreaper() -> None:
    """Let processes whose parent has ended become children of this one, if they descend from it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def mark_of(folder: Path) -> int:
    """Return the limit (RLIMIT_RTTIME) by which the processes of a run are known.

    Every process inherits its parent's limits, also those that overwrite or drop their environment or start a session
    of their own. The guard sets this one, which is for real-time processes only.
    """
    return MIN_MARK + int(folder.name.removeprefix(PREFIX), 16)


def find_marked(folder: Path) -> list[psutil.Process]:
    """Return the other processes of a run, and those that have ended if this process must reap them."""
    marked = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or belongs to another user
            is_marked = process.pid != os.getpid() and process.rlimit(psutil.RLIMIT_RTTIME)[
                0
            ] == mark_of(folder)
            if is_marked and (process_status(process.pid) or process.ppid() == os.getpid()):
                marked.append(process)
    return marked


def process_status(pid: int) -> str | None:
    """Return the state of a process; None if it has ended."""
    with suppress(psutil.Error):
        status = psutil.Process(pid).status()
        return None if status == psutil.STATUS_ZOMBIE else status
    return None


def clean(folder: Path) -> list[str]:
    """Kill the processes of a run until there are none.

    Then remove the folders of the run, and the files in /dev/shm that are named after the run or these processes:
    semaphores, iceoryx2's memory, and those of shared GPU memory (torch, CUDA). The folders are removed in any case.
    Return the processes that have not ended after CLEAN_SECONDS, for an error message.
    """
    files = [folder / kind for kind in ("semaphores", "pids")]
    names, pids = (path.read_text().split() if path.exists() else [] for path in files)
    deadline = time.monotonic() + CLEAN_SECONDS
    while (processes := find_marked(folder)) and time.monotonic() < deadline:
        for process in processes:
            pids.append(str(process.pid))
            with suppress(psutil.Error):  # it has ended
                process.kill()
        psutil.wait_procs(processes, timeout=0.2)  # it also reaps children of this process
    # Ray's channels name their semaphores after the process that made them.
    of_channels = []
    for pid in pids:
        of_channels += [f"{kind}{pid}" for kind in CHANNEL_SEMAPHORES]
    for creator in (folder.name, *of_channels):
        names += [path.name for path in SHARED_MEMORY.glob(f"sem.{creator}-*")]
    # torch counts the readers of GPU memory that it shares (CUDA IPC) in files that are named after its owner.
    # An id may be that of another program by now, which shares its own tensors.
    for pid in pids:
        if not process_status(int(pid)):
            names += [path.name for path in SHARED_MEMORY.glob(f"torch_{pid}_*")]
            names += [path.name for path in find_cuda_files(int(pid), SHARED_MEMORY)]
    # iceoryx2 names its memory after the run.
    names += [path.name for path in SHARED_MEMORY.glob(f"{folder.name}.*")]
    unlink_semaphores(names)
    shutil.rmtree(SHARED_MEMORY / folder.name, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    return [
        str(process).removeprefix("psutil.") for process in processes if process_status(process.pid)
    ]


def remove_dead_runs() -> None:
    """Remove what is left of runs whose supervisor and guard have both been killed: nobody locks their folders.

    A run that is beginning has no folder in shared memory yet, and one of another machine or of an earlier boot has
    none here.
    """
    for shared in SHARED_MEMORY.glob(f"{PREFIX}*"):
        for folder in {Path(tempfile.gettempdir()) / shared.name, Path("/tmp") / shared.name}:
            # It is locked or another user's (OSError), or not the folder of a run (ValueError).
            with suppress(OSError, ValueError), ExitStack() as stack:
                handle = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, handle)
                # This fails at once if the supervisor or the guard of the run is alive.
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                clean(folder)


def remember(
    folder: Path, kind: Literal["pids", "gcs", "semaphores"], values: Iterable[int | str]
) -> None:
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


if __name__ == "__main__":
    run_guard()
