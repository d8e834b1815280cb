"""Run a program with the recorder, and show what it spends on moving data."""

import os
import sys
import time
from argparse import Namespace
from pathlib import Path

from raymeter.commands import show
from raymeter.errors import UserError
from raymeter.launch import environment_of, find_program, run_program


def main(arguments: Namespace) -> int:
    """Return the exit code of the program."""
    words = find_program(arguments.program, arguments.module)
    folder = arguments.output or new_folder(arguments.program[0])
    if folder.exists() and (folder.is_file() or any(folder.iterdir())):
        raise UserError(f"--output {folder}: it has files already. Give a new folder")
    environment = environment_of(os.environ, folder, arguments.min_bytes)
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}. Give another folder with --output") from None
    code = run_program(words, environment)
    try:
        show.show_new_profile(folder, arguments.step, arguments.html)
    except UserError as error:
        print(f"raymeter: {error}", file=sys.stderr)
    return code


def new_folder(program: str) -> Path:
    """Return a new folder in the current one, named after the time and the program."""
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-{Path(program).stem}"
    folder = Path("raymeter-profiles") / name
    number = 2
    while folder.exists():
        folder = folder.with_name(f"{name}-{number}")
        number += 1
    return folder
