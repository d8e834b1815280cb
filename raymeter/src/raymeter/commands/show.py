"""Show a profile that exists."""

import shutil
from argparse import Namespace
from pathlib import Path

from raymeter.advice import advise
from raymeter.profile.reader import read_recording
from raymeter.report import terminal


def main(arguments: Namespace) -> int:
    show_folder(arguments.folder, arguments.step)
    return 0


def show_folder(folder: Path, step: str | None) -> None:
    """Print the profile of a folder; raise UserError if it has none."""
    profile = advise(read_recording(folder), step)
    width = shutil.get_terminal_size((80, 24)).columns
    print(terminal.render(profile, width), end="")
    print(f"Profile: {folder}")
