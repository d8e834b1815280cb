# SPDX-License-Identifier: Apache-2.0
"""Notice that a program starts a cluster of Ray without raymeter's hook, because it has changed its environment.

Ray's raylet is a process that the program starts, with the variables that the program has then.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raymeter.launch import HOOK, USERS_HOOK
from raymeter.memory.processes import find_processes

RAYLET = "raylet"
SECONDS = 1.0  # between two looks
MAX_SHARE = 0.01  # of the time, for looking


class HookWatch:
    """Look at the processes of a program until it is recorded, or has started Ray without raymeter's hook."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_without_hook = False
        self.ended = threading.Event()

    @contextmanager
    def watch(self, root: int) -> Iterator[None]:
        """Look at a process, and those that it has started, in a thread."""
        thread = threading.Thread(target=self.look_until_known, args=[root], daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.ended.set()
            thread.join()

    def look_until_known(self, root: int) -> None:
        """Look again and again; set is_without_hook if a raylet without the hook runs before anything is recorded."""
        pause = SECONDS
        while not self.ended.wait(pause):
            begin = time.perf_counter()
            if any(self.folder.glob("*.jsonl")):
                return
            raylets = filter(is_raylet, find_processes(root, self.folder))
            if any(map(starts_without_hook, raylets)):
                self.is_without_hook = True
                return
            taken = time.perf_counter() - begin
            pause = max(SECONDS, taken / MAX_SHARE)


def is_raylet(pid: int) -> bool:
    program, *_ = read_texts(pid, "cmdline") or [""]
    return Path(program).name == RAYLET


def starts_without_hook(pid: int) -> bool:
    """Return whether raymeter's hook is not among the variables with which a process was started."""
    variables = read_texts(pid, "environ")
    return bool(variables) and f"{USERS_HOOK}={HOOK}" not in variables


def read_texts(pid: int, file: str) -> list[str]:
    """Return the words or variables of a process; none if it has ended, or belongs to another user."""
    try:
        text = Path("/proc", str(pid), file).read_bytes()
    except OSError:
        return []
    return text.decode(errors="replace").rstrip("\0").split("\0")
