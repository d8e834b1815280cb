"""Start a worker, and end every process that descends from it when the supervisor asks for it or has died.

    python3 -m dataflow.workers.guard RUN_FOLDER SOCKET DIRECTORY COMMAND...

The guard is the worker's parent and a child subreaper: the kernel makes every process of the run that loses its parent
a child of the guard. No process can leave this tree, whatever it does with its session, title or environment.
The guard writes the worker's process id, and later its exit code, to the file descriptor SOCKET. The supervisor closes
the other end, or the kernel does when the supervisor has died.
"""

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


def become_subreaper() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    socket = int(sys.argv[2])
    os.set_inheritable(socket, False)
    os.chdir(sys.argv[3])
    become_subreaper()
    worker = os.posix_spawn(sys.argv[4], sys.argv[4:], os.environ, setsid=True)
    _send(socket, worker)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # only the supervisor ends the guard
        signal.signal(number, signal.SIG_IGN)
    reaper = threading.Thread(target=_reap_children, args=(worker, socket), daemon=True)
    reaper.start()

    from pathlib import Path  # now, because the worker need not wait for these imports

    import psutil

    from dataflow.workers.cleanup import clean

    def find_descendants() -> list[psutil.Process]:
        while reaper.is_alive():  # the list of processes misses one that loses its parent while it is made
            if descendants := psutil.Process().children(recursive=True):
                return descendants
        return []

    with suppress(ConnectionResetError):  # the supervisor has not read everything
        os.read(socket, 1)  # returns when the other end is closed
    if clean(Path(sys.argv[1]), find_descendants):
        sys.exit(1)  # the supervisor inherits the processes that are left, and names them


def _reap_children(worker: int, socket: int) -> None:
    """Wait for every child, so that no zombie stays. Return when there is none, and so no descendant either."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == worker:
                _send(socket, os.waitstatus_to_exitcode(status))


def _send(socket: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the supervisor has closed its end, or died
        os.write(socket, str(number).encode())


if __name__ == "__main__":
    main()
