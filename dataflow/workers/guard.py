"""Start the driver process of a run, and end the whole run when the supervisor asks for it or has died.

    python3 -m dataflow.workers.guard RUN_FOLDER SOCKET DIRECTORY COMMAND...

The guard is the parent of the driver process, and the kernel makes every process of the run that loses its parent a
child of the guard. It writes the id of the driver process, and later its exit code, to the file descriptor SOCKET. The
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

from dataflow.workers.cleanup import become_subreaper, clean, mark_of


def main() -> None:
    folder, socket = Path(sys.argv[1]), int(sys.argv[2])
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)  # until this process ends
    resource.setrlimit(resource.RLIMIT_RTTIME, (mark_of(folder), resource.RLIM_INFINITY))
    os.set_inheritable(socket, False)
    os.chdir(sys.argv[3])
    become_subreaper()
    driver = os.posix_spawn(sys.argv[4], sys.argv[4:], os.environ, setsid=True)
    _send(socket, driver)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # only the supervisor ends the guard
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_reap_children, args=(driver, socket), daemon=True).start()
    with suppress(ConnectionResetError):  # the supervisor has not read everything
        os.read(socket, 1)  # returns when the other end is closed
    if clean(folder):
        sys.exit(1)  # the supervisor inherits the processes that are left, and names them


def _reap_children(driver: int, socket: int) -> None:
    """Wait for every child, so that no zombie stays, until there is none."""
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
