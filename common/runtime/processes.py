"""The roles of a case as plain Python processes, without Ray; the counterpart of cluster.py and ray_roles.py.

A role's main thread runs the transport's loop, `run()` of its class. A second thread answers what the
driver asks (verify, costs) through a pipe, as Ray's actors do while their graph's loop runs.
"""

import multiprocessing.util
import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any

from common.flow.flow import DRIVER, Flow
from common.run.clock import TripTimeout
from common.runtime import needs as memory

ANSWER_SECONDS = 2  # until a role that is asked how far it is counts as hanging


class RoleFailed(RuntimeError):
    """A role that raised or died."""


def configure(arguments: Namespace) -> None:
    """Set what the processes inherit."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def reserve(arguments: Namespace, flow: Flow) -> int:
    """No object store; the payloads must fit into memory all the same."""
    memory.need_memory(flow)
    return 0


@contextmanager
def connect(arguments: Namespace, store_bytes: int, gpus: int) -> Iterator["ProcessRoles"]:
    """Roles, none of them started yet; their processes end with the block."""
    roles = ProcessRoles()
    try:
        yield roles
    finally:
        roles.kill()


class ProcessRoles:
    """A process a role, or, with `in_process`, all roles in the driver's own."""

    errors = (RoleFailed, TripTimeout, TypeError, RuntimeError)

    def __init__(self) -> None:
        self.processes: dict[str, Any] = {}
        self.pipes: dict[str, connection.Connection] = {}
        self.failure: str | None = None
        self.names: list[str] = []
        self.in_process = False
        self.trainer = None
        self.blamed = False
        self.deciding = threading.Lock()
        self.ended = threading.Event()

    def start(self, role_class: type, flow: Flow, arguments: Namespace, *extra: Any) -> dict[str, Any]:
        """Start a process a role and construct role_class(flow, name, arguments, *extra) in it.

        Raises:
            RoleFailed: a role raised or died before it was ready.
        """
        self.names = [role.name for role in flow.roles]
        self.in_process = not hasattr(role_class, "run")
        if self.in_process:
            self.roles = {name: role_class(flow, name, arguments, *extra) for name in self.names}
            return self.roles
        spawn = multiprocessing.get_context("spawn")
        multiprocessing.util.get_temp_dir()  # made here, so that the roles, which inherit it, leave none of their own
        for name in self.names:
            self.pipes[name], theirs = spawn.Pipe()
            where = (role_class, flow, name, arguments, extra, theirs)
            self.processes[name] = spawn.Process(target=_live, args=where, name=name, daemon=True)
            self.processes[name].start()
            theirs.close()
        for name in self.names:
            self._answer(name)
        self._watch()
        return self.processes

    def _watch(self) -> None:
        """From now on a role that dies or raises ends the trip at once, and with it the other roles.

        A signal does too: a driver that waits inside a library does not see Ctrl-C or its deadline, but its
        peers' connections closing.
        """
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGUSR1, self._raise_failure)
        main = threading.get_ident()

        def wait() -> None:
            sentinels = {process.sentinel: name for name, process in self.processes.items()}
            found = connection.wait([woken, *sentinels])
            if self.ended.is_set():
                return
            dead = [sentinels[sentinel] for sentinel in found if sentinel != woken]
            self._find_failure(dead)
            if dead:
                signal.pthread_kill(main, signal.SIGUSR1)
            self._end_processes()

        threading.Thread(target=wait, daemon=True).start()
        self.wake = wake

    def _raise_failure(self, *_: Any) -> None:
        if not self.blamed:  # else the trip has failed already, with the connection to this role
            raise RoleFailed(self.failure)

    def _find_failure(self, dead: list[str]) -> str:
        """What went wrong: found once, before the other roles are ended."""
        with self.deciding:
            if self.failure is None:
                self.failure = "; ".join(map(self._last_words, dead)) or self._who_waits()
            return self.failure

    def _who_waits(self) -> str:
        """How far each role is, as far as it says so."""
        said = []
        for name, pipe in self.pipes.items():
            try:
                pipe.send(("progress", ()))
                answers = pipe.poll(ANSWER_SECONDS)
                said.append(f"{name} has received {pipe.recv()[1]} trips" if answers else f"{name} does not answer")
            except (OSError, EOFError):
                said.append(f"{name} died")
        return ", ".join(said)

    def _last_words(self, name: str) -> str:
        try:
            while self.pipes[name].poll():
                kind, what = self.pipes[name].recv()
                if kind == "raised":
                    return f"{name} raised {what}"
        except (OSError, EOFError):
            pass
        return f"{name} died"

    def ask(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of every role at once; the answers by name."""
        if self.in_process:
            return {name: getattr(role, method)(*arguments) for name, role in self.roles.items()}
        for name, pipe in self.pipes.items():
            try:
                pipe.send((method, arguments))
            except OSError:
                raise RoleFailed(self._last_words(name)) from None
        return {name: self._answer(name) for name in self.names}

    def _answer(self, name: str) -> Any:
        try:
            kind, what = self.pipes[name].recv()
        except (OSError, EOFError):
            raise RoleFailed(f"{name} died") from None
        if kind == "raised":
            raise RoleFailed(f"{name} raised {what}")
        return what

    def placement(self) -> dict[str, int]:
        """Everything runs on this machine."""
        return dict.fromkeys([DRIVER, *self.names], 0)

    def store_counters(self) -> tuple[int, int]:
        """There is no object store."""
        return 0, 0

    def blame(self, error: Exception, trip: int) -> str:
        """Who is to blame for a trip that failed, in one line."""
        self.blamed = True
        if isinstance(error, RoleFailed) or self.in_process:
            return str(error)
        return f"{error}; {self._find_failure([])}"

    def kill(self) -> None:
        """End every process."""
        self.ended.set()
        if hasattr(self, "wake"):
            signal.set_wakeup_fd(-1)
            os.write(self.wake, b"x")
        self._end_processes()

    def _end_processes(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.join()


def _live(role_class: type, flow: Flow, name: str, arguments: Namespace, extra: tuple, pipe: Any) -> None:
    """A role's process: construct it, answer the pipe in one thread, run the transport's loop in this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver's Ctrl-C; it ends us
    try:
        role = role_class(flow, name, arguments, *extra)
        pipe.send(("ready", None))
        threading.Thread(target=_answer_questions, args=(role, pipe), daemon=True).start()
        role.run()
    except Exception as error:
        pipe.send(("raised", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"))
        sys.exit(1)


def _answer_questions(role: Any, pipe: Any) -> None:
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            os._exit(0)  # the driver is gone
        try:
            pipe.send(("answer", getattr(role, method)(*arguments)))
        except Exception as error:
            pipe.send(("raised", f"{type(error).__name__}: {error}"))
