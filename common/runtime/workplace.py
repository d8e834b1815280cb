"""A run's own folders and processes, and their removal, whatever happens to whom.

Every process of a run bears the run's name in its environment. A run is cleaned up by its supervisor; where that is
killed, by a guard that the supervisor forked; where both are, by the next run of any script.
"""

import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "DATA_FLOW_RUN"
PREFIX = "data-flow-"
SHARED_MEMORY = Path("/dev/shm")


class Workplace:
    """The folder of a run, which ends with the block, and all that the run left behind with it."""

    def __init__(self) -> None:
        # Ray puts Unix sockets below this folder, and their paths may have 107 characters at most.
        parent = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) < 24 else "/tmp")
        self.folder = parent / f"{PREFIX}{secrets.token_hex(4)}"
        self.shared = SHARED_MEMORY / self.folder.name

    def __enter__(self) -> "Workplace":
        self.folder.mkdir(mode=0o700)
        (self.folder / "owner").write_text(_identity(os.getpid()))
        self.shared.mkdir(mode=0o700)
        self._start_guard()
        return self

    def __exit__(self, *_: object) -> None:
        clean(self.folder)
        with suppress(BrokenPipeError):  # somebody has killed the guard
            os.write(self.alive, b"done")
        os.close(self.alive)
        os.waitpid(self.guard, 0)

    def _start_guard(self) -> None:
        """A process that does nothing until this one is gone, and then cleans up if this one has not."""
        hears, self.alive = os.pipe()
        self.guard = os.fork()
        if self.guard:
            os.close(hears)
            return
        try:
            os.setsid()  # Ctrl-C is not for it
            os.close(self.alive)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nowhere, stream)
            if not os.read(hears, 4):
                clean(self.folder)
        finally:
            os._exit(0)


def clean(folder: Path) -> None:
    """End the run's processes, and remove its folders and the semaphores of its channels."""
    pids = {int(pid) for path in folder.glob("pids") for pid in path.read_text().split()}
    deadline = time.monotonic() + 10
    while (found := _living(folder.name)) and time.monotonic() < deadline:
        for process in found:
            pids.add(process.pid)
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=0.2)
    remove_semaphores(pids)
    unlink_semaphores(path.name for path in SHARED_MEMORY.glob(f"sem.{folder.name}-*"))
    unlink_semaphores(name for path in folder.glob("semaphores") for name in path.read_text().split())
    shutil.rmtree(SHARED_MEMORY / folder.name, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def remember(folder: Path, pids: Iterable[int] = (), semaphores: Iterable[str] = ()) -> None:
    """Keep the ids of processes that may be gone when the run is cleaned up, and names of what they leave."""
    for kind, found in (("pids", pids), ("semaphores", semaphores)):
        with (folder / kind).open("a") as file:
            print(*found, file=file)


def remove_semaphores(pids: set[int]) -> None:
    """Unlink the named semaphores of channels that these processes made; Ray leaves two a channel."""
    for path in SHARED_MEMORY.glob("sem.*-*"):
        owner = re.match(r"sem\.(?:obj|hdr)(\d+)-", path.name)
        if owner and int(owner[1]) in pids:
            path.unlink(missing_ok=True)


def channel_semaphores() -> list[str]:
    """Names of the channels' semaphores that this process has open.

    Who makes one maps it under a passing name, so they are found by their inodes.
    """
    mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "/sem." in line]
    inodes = {int(columns[4]) for columns in mapped}
    found = []
    for path in SHARED_MEMORY.glob("sem.*-*"):
        with suppress(FileNotFoundError):  # another run's
            if path.stat().st_ino in inodes:
                found.append(path.name)
    return found


def unlink_semaphores(names: Iterable[str]) -> None:
    """Those of this machine among them; whoever has them open keeps them."""
    for name in names:
        (SHARED_MEMORY / name).unlink(missing_ok=True)


def sweep() -> None:
    """Remove what dead runs of this suite left, of this user alone."""
    for parent in {Path(tempfile.gettempdir()), Path("/tmp")}:
        for folder in parent.glob(f"{PREFIX}*"):
            with suppress(OSError, ValueError):  # somebody else removes it now, or it has only just been made
                owner = (folder / "owner").read_text()
                if folder.stat().st_uid == os.getuid() and owner != _identity(int(owner.partition(" ")[0])):
                    clean(folder)


def _identity(pid: int) -> str:
    """A process and when it began, since ids come again; the id alone where it is gone."""
    try:
        return f"{pid} {psutil.Process(pid).create_time()}"
    except psutil.Error:
        return f"{pid}"


def _living(name: str) -> list[psutil.Process]:
    mark, found = f"{MARK}={name}".encode(), []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, psutil.Error):  # gone, or not ours to look at
            if path.name != str(os.getpid()) and mark in (path / "environ").read_bytes().split(b"\0"):
                process = psutil.Process(int(path.name))
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found
