"""Start the driver process of a run, and end the whole run when the supervisor asks for it or has died.

    python3 -m dataflow.workers.guard RUN_FOLDER SOCKET DIRECTORY COMMAND...

The guard is the parent of the driver process and a child subreaper: the kernel makes every process of the run that
loses its parent a child of the guard. No process can leave this tree, whatever it does with its session, title or
environment. The guard writes the id of the driver process, and later its exit code, to the file descriptor SOCKET. The
supervisor closes the other end, or the kernel does when the supervisor has died.
"""

import fcntl
import os
import resource
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil

from dataflow.workers.cleanup import become_subreaper, clean, mark_of


def main() -> None:
    folder, socket = Path(sys.argv[1]), int(sys.argv[2])
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)  # until this process ends
    with suppress(OSError, ValueError):  # this user has a lower limit
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark_of(folder), resource.RLIM_INFINITY))
    os.set_inheritable(socket, False)
    os.chdir(sys.argv[3])
    become_subreaper()
    driver = os.posix_spawn(sys.argv[4], sys.argv[4:], os.environ, setsid=True)
    _send(socket, driver)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # only the supervisor ends the guard
        signal.signal(number, signal.SIG_IGN)
    reaper = threading.Thread(target=_reap_children, args=(driver, socket), daemon=True)
    reaper.start()

    def find_descendants() -> list[psutil.Process]:
        while reaper.is_alive():  # the list of processes misses one that loses its parent while it is made
            if descendants := psutil.Process().children(recursive=True):
                return descendants
        return []

    with suppress(ConnectionResetError):  # the supervisor has not read everything
        os.read(socket, 1)  # returns when the other end is closed
    if clean(folder, find_descendants):
        sys.exit(1)  # the supervisor inherits the processes that are left, and names them


def _reap_children(driver: int, socket: int) -> None:
    """Wait for every child, so that no zombie stays. Return when there is none, and so no descendant either."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == driver:
                _send(socket, os.waitstatus_to_exitcode(status))


def _send(socket: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the supervisor has closed its end, or died
        os.write(socket, str(number).encode())


if __name__ == "__main__":
    main()
