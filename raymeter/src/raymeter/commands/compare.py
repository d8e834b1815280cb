# SPDX-License-Identifier: Apache-2.0
"""Compare a program before and after a change: interleaved runs, or two profiles that exist."""

import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from raymeter.commands.output import show_text
from raymeter.commands.repeated_runs import Program, Recorder, Run, read_run, run_interleaved
from raymeter.commands.run import make_folder
from raymeter.errors import UserError
from raymeter.launch import find_program, is_program, read_words
from raymeter.report.comparison import render_markdown, render_text

SEPARATOR = "--"
PROGRAM_FLAGS = ("-m", "--folders", "--set")  # with which programs are compared, and no profiles


def split_words(words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Return the words before and after the first "--"; None for the second without one."""
    words = list(words)
    if SEPARATOR not in words:
        return words, None
    position = words.index(SEPARATOR)
    before = words[:position]
    after = words[position + 1 :]
    return before, after


def put_flags_first(words: Sequence[str]) -> list[str]:
    """Return the words with the two folders of profiles at their end, without "--".

    A profile has no flags, so that all flags are those of compare. The words stay as they are if there are not exactly
    two of these folders, or if there is a program.
    """
    profiles = [word for word in words if has_profile(Path(word))]
    others = [word for word in words if word not in profiles and word != SEPARATOR]
    programs = [word for word in others if word in PROGRAM_FLAGS or is_program(Path(word))]
    if len(profiles) != 2 or programs:
        return list(words)
    return [*others, *profiles]


def main(arguments: Namespace, after: list[str] | None) -> int:
    """Compare `arguments.program` with the words after "--", and print the table; return 0.

    Both are programs to run, or both together are two folders with profiles. Raise UserError if a program is missing or
    fails, or if a profile cannot be read.
    """
    folders = profile_folders(arguments, after)
    if folders is not None:
        runs = [[read_run(folder, arguments.step)] for folder in folders]
        show_comparison(runs, arguments.markdown)
        return 0
    programs = find_programs(arguments, after)
    folder = make_folder(arguments.output, name_of(programs[1]))
    recorder = Recorder(folder, arguments.min_bytes, arguments.step)
    announcement = (
        f"raymeter runs each of two programs {arguments.runs} times, in turns. Their output goes to "
        f"files in {folder}."
    )
    print(announcement, file=sys.stderr)
    runs = run_interleaved(recorder, programs, arguments.runs)
    show_comparison(runs, arguments.markdown)
    print(f"Profiles: {folder}", file=sys.stderr)
    return 0


def show_comparison(runs: Sequence[Sequence[Run]], is_markdown: bool) -> None:
    """Print the runs before and after the change side by side."""
    before, after = runs
    if is_markdown:
        show_text(render_markdown(before, after))
        return
    width = shutil.get_terminal_size((80, 24)).columns
    show_text(render_text(before, after, width))


def name_of(program: Program) -> str:
    """Return the script or module of a program."""
    return next(word for word in program.words if word != "-m")


def profile_folders(arguments: Namespace, after: list[str] | None) -> list[Path] | None:
    """Return two folders with profiles, if the arguments are that and nothing else."""
    words = list(arguments.program)
    if after is not None:
        words += after
    folders = [Path(word) for word in words]
    if len(folders) == 2 and all(has_profile(folder) for folder in folders):
        return folders
    return None


def has_profile(folder: Path) -> bool:
    return any(folder.glob("*.jsonl"))


def find_programs(arguments: Namespace, after: list[str] | None) -> list[Program]:
    """Return the two programs; raise UserError if the arguments are incomplete, or if there is no such script."""
    if after is None:
        raise UserError(
            "compare needs two programs: raymeter compare BEFORE -- AFTER, or two folders with profiles"
        )
    if arguments.folders or arguments.settings:
        if arguments.program:
            raise UserError(
                f"{arguments.program[0]}: with --folders or --set, the program comes after --"
            )
        return same_program(arguments, after)
    before_words = find_program(arguments.program, arguments.module)
    is_module, after = read_words(after, is_module=False)
    after_words = find_program(after, is_module)
    return [Program("before", before_words), Program("after", after_words)]


def same_program(arguments: Namespace, words: list[str]) -> list[Program]:
    """Return one program in two folders (the second one with the settings), or without and with settings.

    Raise UserError if a folder, the script or a setting is wrong.
    """
    settings = dict(read_setting(text) for text in arguments.settings)
    is_module, words = read_words(words, is_module=False)
    if not arguments.folders:
        found = find_program(words, is_module)
        return [Program("before", found), Program("after", found, settings)]
    before, after = arguments.folders
    check_folder(before, is_module, words)
    check_folder(after, is_module, words)
    found = ["-m", *words] if is_module else words
    return [
        Program("before", found, folder=before),
        Program("after", found, settings, folder=after),
    ]


def check_folder(folder: Path, is_module: bool, words: Sequence[str]) -> None:
    """Raise UserError if a folder is not there, or has no such script, or if there are no words."""
    if not folder.is_dir():
        raise UserError(f"--folders {folder}: no such folder")
    if not words:
        raise UserError("no program: give it after --, such as --folders main branch -- train.py")
    script = folder / words[0]
    if not is_module and not is_program(script):
        raise UserError(f"{script}: no such script")


def read_setting(text: str) -> tuple[str, str]:
    """Return name and value of a text such as NAME=VALUE; raise UserError for another text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"--set {text}: give NAME=VALUE")
    return name, value
