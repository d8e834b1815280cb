# SPDX-License-Identifier: Apache-2.0
"""Let a worker write down where its threads are when the supervisor asks by a signal, also while it hangs.

The handler runs in C, so a worker answers that waits in a library, or for the interpreter's lock.
"""

import faulthandler
import os
import re
import signal
import sysconfig
import time
from contextlib import suppress
from pathlib import Path

# No library uses it. A process without the handler would be ended by it.
SIGNAL = signal.SIGRTMIN + 7
WAIT_SECONDS = 1  # for the answer; a stopped process gives none
_POLL_SECONDS = 0.02
_FRAME = re.compile(r'^  File "(?P<path>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
# Where threads of the suite and of Ray wait for work, by function or by file.
_IDLE_FUNCTIONS = ("answer_calls", "main_loop", "listen_error_messages", "_monitor_failures")
_IDLE_FILES = ("gc_collect_manager.py",)


def stacks_path(folder: Path, pid: int) -> Path:
    """Return the file with the stacks of a process. It exists if the process answers the signal."""
    return folder / f"stacks-{pid}"


def write_stacks_on_signal(folder: Path) -> None:
    """Answer SIGNAL with the stacks of all threads from now on; not on a machine without the run's folder."""
    if not folder.is_dir():
        return
    path = stacks_path(folder, os.getpid())
    unfinished = path.with_suffix(".new")
    file = unfinished.open("a")  # it stays open for the handler
    faulthandler.register(SIGNAL, file, all_threads=True)
    unfinished.rename(path)


def ask_for_stacks(folder: Path, pid: int) -> str:
    """Return the stacks of a process on this machine, or "" if it has no handler or does not answer in time."""
    path = stacks_path(folder, pid)
    if not path.is_file():
        return ""
    os.truncate(path, 0)
    with suppress(ProcessLookupError):
        os.kill(pid, SIGNAL)
    deadline = time.monotonic() + WAIT_SECONDS
    text = ""
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        newer = path.read_text("utf-8", errors="replace")
        if newer and newer == text:  # all of it is there
            break
        text = newer
    return text


def name_waits(stacks: str) -> list[str]:
    """Return where threads are that do something: the innermost call outside the standard library, "f (file.py:12)".

    stacks: as faulthandler writes them, the innermost call of each thread first.
    """
    waits = []
    for thread in stacks.split("\n\n"):
        place = _find_place(thread)
        if place and place not in waits:
            waits.append(place)
    return waits


def _find_place(thread: str) -> str:
    """Return the innermost call of a thread outside the standard library; "" if it waits for work."""
    for text in thread.splitlines():
        frame = _FRAME.match(text)
        if not frame or is_of_standard_library(frame["path"]):
            continue
        file = Path(frame["path"]).name
        if frame["function"] in _IDLE_FUNCTIONS or file in _IDLE_FILES:
            return ""
        return f"{frame['function']} ({file}:{frame['line']})"
    return ""


def is_of_standard_library(path: str) -> bool:
    return path.startswith(_STANDARD_LIBRARY) and "site-packages" not in path
