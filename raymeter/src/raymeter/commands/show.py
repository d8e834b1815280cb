# SPDX-License-Identifier: Apache-2.0
"""Show a profile that exists, and write its files."""

import gc
import shutil
from argparse import Namespace
from pathlib import Path

from raymeter.advice import Profile, advise
from raymeter.commands.output import say_damaged, show_text
from raymeter.errors import UserError
from raymeter.profile.reader import read_recording
from raymeter.report import flow, html, perfetto, summary, terminal

PAGE = "profile.html"
TEXT = "profile.txt"
TRACE = "trace.json"
FLOW = "flow.toml"
SUMMARY = "profile.json"


def main(arguments: Namespace) -> int:
    """Print the profile of a folder, and write its page if `--html` is given; return 0.

    Raise UserError if there is no profile, or if the page cannot be written.
    """
    profile = load_profile(arguments.folder, arguments.step)
    show_text(render(profile))
    if arguments.html is not None:
        is_named = arguments.html != Path()  # --html without a file
        path = arguments.html if is_named else arguments.folder / PAGE
        write_page(profile, path)
    return 0


def load_profile(folder: Path, step: str | None) -> Profile:
    """Return the profile of a folder; raise UserError if it has none.

    The events of a long program are many objects, which Python's collector would look at again and again.
    """
    gc.disable()
    try:
        recording = read_recording(folder)
        say_damaged(recording.damaged)
        return advise(recording, step)
    finally:
        gc.enable()


def render(profile: Profile) -> str:
    """Return the text of a profile for the width of this terminal."""
    width = shutil.get_terminal_size((80, 24)).columns
    return terminal.render(profile, width).removesuffix("\n")


def show_new_profile(
    folder: Path, step: str | None, has_page: bool, has_exited: bool = False
) -> None:
    """Print the profile of a program that has just run, and write its files; raise UserError if one of these fails.

    `has_exited`: it was seen that no signal has ended the program.
    """
    profile = load_profile(folder, step)
    profile.program.recording.has_exited = has_exited
    text = render(profile)
    show_text(text)
    try:
        (folder / TEXT).write_text(text + "\n", encoding="utf-8")
        perfetto.write(profile, folder / TRACE)
        flow.write(profile, folder / FLOW)
        summary.write(profile, folder / SUMMARY)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}. Its other files are not written") from None
    if has_page:
        write_page(profile, folder / PAGE)


def write_page(profile: Profile, path: Path) -> None:
    """Write the page of a profile, and print where it is; raise UserError if it cannot be written."""
    try:
        html.write(profile, path)
    except OSError as error:
        raise UserError(f"--html {path}: {error.strerror}. Give another file") from None
    show_text(f"Page: {path}")
