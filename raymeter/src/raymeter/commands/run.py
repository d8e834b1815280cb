# SPDX-License-Identifier: Apache-2.0
"""Run a program with the recorder, and show what it spends on moving data."""

import os
import shutil
import sys
import tempfile
import time
import traceback
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from raymeter.commands import show
from raymeter.commands.without_hook import HookWatch
from raymeter.errors import NO_CLIENT, UserError
from raymeter.launch import (
    CLIENT,
    IMPORTED,
    USERS_HOOK,
    environment_of,
    find_program,
    may_be_client,
    run_program,
)
from raymeter.memory.processes import FILE as SAMPLES

PROFILES = Path("raymeter-profiles")
IGNORE_FILE = ".gitignore"
FIRST_SIGNAL = 128  # exit codes from this one on, as a rule: a signal has ended the program
ERROR = "error.txt"  # of raymeter itself
REASON = "not-recorded.txt"  # written by raymeter.inside.hook
WITHOUT_HOOK = (
    f"the program has removed or replaced {USERS_HOOK} in os.environ before ray.init, and Ray calls raymeter by it. "
    "Keep this variable, and those that begin with RAYMETER_."
)
NAMES_CLIENT = (
    f"the program, or one of its arguments, has an address of Ray Client ({CLIENT}). {NO_CLIENT}."
)


def main(arguments: Namespace) -> int:
    """Run a program with the recorder, show its profile, and return the exit code of the program.

    The code is the same if nothing was recorded, or the profile cannot be shown. Raise UserError if there is no such
    program, or no folder for the profile.
    """
    words = find_program(arguments.program, arguments.module)
    folder = make_folder(arguments.output, arguments.program[0])
    warn_of_client(os.environ)
    is_client = may_be_client(os.environ, words)
    environment = environment_of(os.environ, folder, arguments.min_bytes, is_client)
    hook = HookWatch(folder)
    code = run_program(words, environment, hook.watch)
    if not has_recording(folder):
        seen = NAMES_CLIENT if is_client else ""
        if hook.is_without_hook:
            seen = WITHOUT_HOOK
        say_nothing_recorded(folder, code, seen)
        remove_empty(folder)
        return code
    with errors_shown(folder):
        has_exited = code < FIRST_SIGNAL
        show.show_new_profile(folder, arguments.step, arguments.html, has_exited)
    return code


@contextmanager
def errors_shown(folder: Path) -> Iterator[None]:
    """Say in one line if a profile cannot be shown: the exit code is that of the program in any case.

    The traceback of an error in raymeter itself goes into the folder of the profile.
    """
    try:
        yield
    except UserError as error:
        print(f"raymeter: {error}", file=sys.stderr)
    except Exception as error:
        with suppress(OSError):
            (folder / ERROR).write_text(traceback.format_exc(), encoding="utf-8")
        print(
            f"raymeter: an error of raymeter, not of your program: {type(error).__name__}: {error}. Please report it "
            f"with {folder / ERROR}",
            file=sys.stderr,
        )


def make_folder(output: Path | None, program: str) -> Path:
    """Return a new folder for a profile: `output`, or one named after the program; raise UserError if there is none."""
    folder = output or name_folder(program)
    if folder.exists() and (folder.is_file() or any(folder.iterdir())):
        raise UserError(f"--output {folder}: it has files already. Give a new folder")
    try:
        fill_folder(folder)
    except OSError as error:
        if output is not None:
            raise UserError(
                f"{folder}: {error.strerror}. Give another folder with --output, before the script"
            ) from None
        folder = make_temporary_folder()
        print(
            f"raymeter: {PROFILES}: {error.strerror}. The profile goes to {folder}", file=sys.stderr
        )
    return folder


def make_temporary_folder() -> Path:
    """Return a new folder in the one of the system for temporary files; raise UserError if that is not possible."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="raymeter-"))
        fill_folder(folder)
    except OSError:
        raise UserError(
            f"neither {PROFILES} nor a temporary folder can hold a profile. Give a folder with --output"
        ) from None
    return folder


def fill_folder(folder: Path) -> None:
    """Make the folder of a profile if needed; git, and Ray, which uploads working folders, leave it out."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    (folder / IGNORE_FILE).write_text("*\n")


def name_folder(program: str) -> Path:
    """Return a new folder in the current one, named after the time and the program."""
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-{Path(program).resolve().stem}"
    folder = PROFILES / name
    number = 2
    while folder.exists():
        folder = folder.with_name(f"{name}-{number}")
        number += 1
    return folder


def has_recording(folder: Path) -> bool:
    """Return whether a process has written into the folder of a profile."""
    return any(folder.glob("*.jsonl"))


def say_nothing_recorded(folder: Path, code: int, seen: str = "") -> None:
    """Say in one line why nothing was recorded, if no line has said it before the program began.

    `seen` is the reason that was seen from outside of the program, if any.
    """
    if has_client_address(os.environ):
        return
    reason = read_reason(folder) or seen or describe_nothing(code)
    print(f"raymeter: nothing was recorded: {reason}", file=sys.stderr)


def read_reason(folder: Path) -> str:
    """Return why raymeter's hook could not record the program into this folder; "" if it has not written it."""
    try:
        return (folder / REASON).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def describe_nothing(code: int) -> str:
    """Return what was seen of a program of which nothing was recorded, and what follows if it got to ray.init."""
    seen = "Ray has not called raymeter"
    if code:
        seen += f" before the program ended with exit code {code}"
    return (
        f"{seen}. If the program got as far as ray.init, it has removed {USERS_HOOK} from os.environ, or it is a "
        f"client (ray://). {NO_CLIENT}."
    )


def remove_empty(folder: Path) -> None:
    """Remove the folder of a profile in which nothing was recorded, and the one of all profiles if that is empty."""
    (folder / IGNORE_FILE).unlink(missing_ok=True)
    (folder / SAMPLES).unlink(missing_ok=True)
    (folder / REASON).unlink(missing_ok=True)
    shutil.rmtree(folder / IMPORTED, ignore_errors=True)
    with suppress(OSError):  # the user has put something there, or there are other profiles
        folder.rmdir()
        if folder.parent == PROFILES:
            PROFILES.rmdir()


def warn_of_client(environment: Mapping[str, str]) -> None:
    """Say in one line that a program of Ray Client cannot be recorded. It runs in any case."""
    if has_client_address(environment):
        print(f"raymeter: RAY_ADDRESS={environment['RAY_ADDRESS']}: {NO_CLIENT}", file=sys.stderr)


def has_client_address(environment: Mapping[str, str]) -> bool:
    """Return whether the environment makes a program a client. Its own code can do that, too."""
    return environment.get("RAY_ADDRESS", "").startswith(CLIENT)
