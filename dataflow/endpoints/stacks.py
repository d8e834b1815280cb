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

# We know of no library that uses it. It would end a process without the handler.
SIGNAL = signal.SIGRTMIN + 7
WAIT_SECONDS = 1  # for the answer; a stopped process gives none
_POLL_SECONDS = 0.02
_FRAME = re.compile(r'^  File "(?P<path>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
# Where threads of the suite and of Ray wait for work: as the innermost call, or anywhere.
_IDLE_CALLS = ("answer_calls", "main_loop")
_IDLE_THREADS = ("listen_error_messages", "_monitor_failures", "run (gc_collect_manager.py")


def stacks_path(folder: Path, pid: int) -> Path:
    """Return the file with the stacks of a process. It exists if the process answers the signal."""
    return folder / f"stacks-{pid}"


def write_stacks_on_signal(folder: Path) -> None:
    """Answer SIGNAL with the stacks of all threads from now on. Do nothing where there is no folder of a run."""
    if not (folder / "progress").is_file():
        return
    path = stacks_path(folder, os.getpid())
    unfinished = path.with_suffix(".new")
    file = unfinished.open("a")  # it stays open for the handler
    faulthandler.register(SIGNAL, file, all_threads=True)
    unfinished.rename(path)


def ask_for_stacks(folder: Path, pid: int) -> str:
    """Return the stacks of a process on this machine, or "" if it has no handler or does not answer in time."""
    text = ""
    with suppress(OSError):  # it has ended, or belongs to another user
        if handles_signal(pid):
            path = stacks_path(folder, pid)
            os.truncate(path, 0)
            os.kill(pid, SIGNAL)
            text = read_answer(path)
    return text


def handles_signal(pid: int) -> bool:
    """Return whether a process has a handler for SIGNAL; raise OSError if it has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
    return bool(int(caught, 16) >> (SIGNAL - 1) & 1)


def read_answer(path: Path) -> str:
    """Return what a process writes within WAIT_SECONDS; "" if it writes nothing."""
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
    """Return where threads are that do not wait for work: their innermost call outside the library, "f (file.py:12)".

    stacks: as faulthandler writes them, the innermost call of each thread first.
    """
    waits = []
    for thread in stacks.split("\n\n"):
        place = _find_place(thread)
        if place and place not in waits:
            waits.append(place)
    return waits


def _find_place(thread: str) -> str:
    """Return the innermost call of a thread outside the standard library; "" without one, or if it waits for work."""
    frames = [match for match in map(_FRAME.match, thread.splitlines()) if match]
    own = [frame for frame in frames if not is_of_standard_library(frame["path"])]
    calls = [f"{frame['function']} ({Path(frame['path']).name}:{frame['line']})" for frame in own]
    if not own or own[0]["function"] in _IDLE_CALLS:
        return ""
    is_idle = any(call.startswith(_IDLE_THREADS) for call in calls)
    return "" if is_idle else calls[0]


def is_of_standard_library(path: str) -> bool:
    """Return whether a module belongs to Python: also one that is frozen in it."""
    is_installed = "site-packages" in path
    return path.startswith((f"{_STANDARD_LIBRARY}/", "<frozen ")) and not is_installed
