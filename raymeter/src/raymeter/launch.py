# SPDX-License-Identifier: Apache-2.0
"""Start the user's program with the recorder, and wait for it."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO

from raymeter.errors import UserError

HOOK = "raymeter.inside.hook.add_to_runtime_env"
USERS_HOOK = "RAY_RUNTIME_ENV_HOOK"
REPORT_INTERVAL = "RAY_task_events_report_interval_ms"
UV_RUN = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"  # then, Ray calls its own hook in place of any other one
CLIENT = "ray://"  # begins the address of Ray Client
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 128 + signal.SIGINT  # exit code of a program that Ctrl-C has ended
POLL_SECONDS = 1.0
MAIN = "__main__.py"  # in a folder that Python can run
IMPORTED = "imported"  # in the folder of a profile


def find_program(words: Sequence[str], is_module: bool) -> list[str]:
    """Return the words after the Python interpreter; raise UserError without words, or if there is no such script.

    Whether there is such a module is not looked at.
    """
    if not words:
        raise UserError(
            "no program: give a script and its arguments, such as raymeter train.py --lr 1e-4"
        )
    if is_module:
        return ["-m", *words]
    if not is_program(Path(words[0])):
        raise UserError(f"{words[0]}: no such script. Flags of your program go after the script")
    return [*words]


def is_program(path: Path) -> bool:
    """Return whether Python can run a path: a file, or a folder with __main__.py."""
    return path.is_file() or (path / MAIN).is_file()


def read_words(words: Sequence[str], is_module: bool) -> tuple[bool, list[str]]:
    """Return whether a program is a module, and its words, without "--" and "python" before them.

    `is_module` is the flag -m, which may also be one of the words. Words may be []. Raise UserError if the first one is
    another Python than the one of raymeter, which runs the program.
    """
    words = list(words)
    if words and words[0] == "--":
        words = words[1:]
    if is_module:
        return True, words
    if len(words) > 1 and is_python(words[0]):
        words = words[1:]
    if words and words[0] == "-m":
        return True, words[1:]
    return False, words


def is_python(word: str) -> bool:
    """Return whether a word is the Python that runs raymeter; raise UserError for another Python."""
    found = shutil.which(word)
    if found is None or not re.fullmatch(r"python[\d.]*", Path(word).name):
        return False
    if not os.path.samefile(os.path.dirname(found), os.path.dirname(sys.executable)):
        raise UserError(
            f"{word} is {found}, and raymeter runs programs with {sys.executable}. Leave the word out, or install "
            "raymeter there"
        )
    return True


def environment_of(
    environment: Mapping[str, str], folder: Path, min_bytes: int, may_be_client: bool = False
) -> dict[str, str]:
    """Return the environment with which a program of Ray writes its events into a folder.

    Ray Client calls Ray's own hook for `uv run`, and never another one. So a client keeps the user's variable.
    """
    changed = dict(environment)
    paths = [str(link_package(folder)), environment.get("PYTHONPATH")]
    changed["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if environment.get(USERS_HOOK) != HOOK:  # this program is not profiled itself
        changed["RAYMETER_USERS_HOOK"] = environment.get(USERS_HOOK, "")
        changed["RAYMETER_USERS_UV_RUN"] = environment.get(UV_RUN, "1")
    changed[USERS_HOOK] = HOOK
    if not may_be_client:
        changed[UV_RUN] = "0"  # raymeter's hook calls that of Ray
    elif UV_RUN in environment:
        changed[UV_RUN] = changed["RAYMETER_USERS_UV_RUN"]
    changed["RAYMETER_FOLDER"] = str(folder.resolve())
    changed["RAYMETER_MIN_BYTES"] = str(min_bytes)
    changed.setdefault(REPORT_INTERVAL, "200")
    return changed


def may_be_client(
    environment: Mapping[str, str], words: Sequence[str], folder: Path | None = None
) -> bool:
    """Return whether a program that is started in `folder` may use Ray Client.

    Its address is in RAY_ADDRESS, in an argument, or in the text of the script or module. An address that comes from
    elsewhere, such as a file, is not found.
    """
    texts = [environment.get("RAY_ADDRESS", ""), *words, read_program(words, folder or Path())]
    return any(CLIENT in text for text in texts)


def read_program(words: Sequence[str], folder: Path) -> str:
    """Return the text of the script or module of these words; "" if it is not in the folder, or cannot be read.

    `words` are those of `find_program`, so the first one is a script, or "-m" with a module after it.
    """
    name = words[0]
    if name == "-m":
        name = words[1].replace(".", os.sep) + ".py"
    path = folder / name
    if (path / MAIN).is_file():
        path = path / MAIN
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def link_package(folder: Path) -> Path:
    """Return a folder with this package and nothing else.

    So a program of another environment that the user's program starts finds it, and none of its neighbours. If the file
    system has no links, or the folder cannot be made, return the folder that raymeter is installed in.
    """
    package = Path(__file__).resolve().parent
    imported = folder.resolve() / IMPORTED
    try:
        imported.mkdir(0o700, parents=True, exist_ok=True)
        (imported / package.name).symlink_to(package)
    except FileExistsError:
        pass  # another run in this folder
    except OSError:  # a file system without links
        return package.parent
    return imported


def run_program(
    words: Sequence[str],
    environment: Mapping[str, str],
    watch: Callable[[int], AbstractContextManager] = nullcontext,
    output: IO[bytes] | None = None,
    folder: Path | None = None,
) -> int:
    """Run a program, and return its exit code: 128 and the signal, if one has ended it. Signals go to the program.

    `watch(process id)` is open while the program runs. It is started in `folder`, and writes to `output`.
    """
    process = subprocess.Popen(
        [sys.executable, *words],
        env=dict(environment),
        stdout=output,
        stderr=output,
        cwd=folder,
    )
    with signals_blocked(), watch(process.pid):
        code = wait_and_pass_on(process)
    return code if code >= 0 else 128 - code  # of a signal, as shells say it


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Let signals wait until they are asked for, and have their usual effect again afterwards."""
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, (*SIGNALS, signal.SIGCHLD))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


def wait_and_pass_on(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a program (minus a signal that ended it), to which signals are passed on meanwhile.

    Signals are blocked in this process, so that they can be taken here. The kernel sends Ctrl-C of a terminal to the
    program, too. Such a signal has no process that sent it.
    """
    while process.poll() is None:
        received = signal.sigtimedwait((*SIGNALS, signal.SIGCHLD), POLL_SECONDS)
        if received is None or received.si_signo == signal.SIGCHLD:
            continue
        is_from_terminal = received.si_pid == 0
        if not is_from_terminal:
            process.send_signal(received.si_signo)
    return process.returncode
