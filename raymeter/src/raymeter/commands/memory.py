# SPDX-License-Identifier: Apache-2.0
"""Run a program, and show what fills its memory: the object store, its processes, and who keeps objects."""

import os
from argparse import Namespace
from pathlib import Path

from raymeter.causes import memory as causes
from raymeter.commands.output import say_damaged, show_text
from raymeter.commands.run import (
    NAMES_CLIENT,
    errors_shown,
    has_recording,
    make_folder,
    remove_empty,
    say_nothing_recorded,
    warn_of_client,
)
from raymeter.launch import environment_of, find_program, is_program, may_be_client, run_program
from raymeter.memory.processes import ProcessSampler, read_samples
from raymeter.profile.program import join
from raymeter.profile.reader import read_recording
from raymeter.profile.steps import find_steps
from raymeter.report import memory as report

INTERVAL = "RAYMETER_MEMORY_SECONDS"  # read by raymeter.inside.memory
CALL_SITES = "RAY_record_ref_creation_sites"


def main(arguments: Namespace) -> int:
    """Run a program and show its memory; for the folder of a profile, only show it.

    Return the exit code of the program, even if its memory cannot be shown; 0 for a folder. Raise UserError if there is
    no such program, or nothing was recorded in the folder.
    """
    old_profile = profile_folder(arguments.program)
    if old_profile is not None:
        show_folder(old_profile, arguments.step)
        return 0
    words = find_program(arguments.program, arguments.module)
    folder = make_folder(arguments.output, arguments.program[0])
    warn_of_client(os.environ)
    is_client = may_be_client(os.environ, words)
    environment = environment_of(os.environ, folder, arguments.min_bytes, is_client)
    environment[INTERVAL] = str(arguments.seconds)
    environment.setdefault(CALL_SITES, "1")

    def watch(process: int) -> ProcessSampler:
        return ProcessSampler(process, folder, arguments.seconds)

    code = run_program(words, environment, watch)
    if not has_recording(folder):
        say_nothing_recorded(folder, code, NAMES_CLIENT if is_client else "")
        remove_empty(folder)
        return code
    with errors_shown(folder):
        show_folder(folder, arguments.step)
    return code


def profile_folder(words: list[str]) -> Path | None:
    """Return the folder of a profile, if that is the only word; None for a program.

    Any folder that is no program counts as one of a profile.
    """
    if len(words) != 1 or not Path(words[0]).is_dir():
        return None
    folder = Path(words[0])
    if is_program(folder) and not has_recording(folder):
        return None
    return folder


def show_folder(folder: Path, step: str | None) -> None:
    """Print what filled the memory; raise UserError without a profile."""
    recording = read_recording(folder)
    say_damaged(recording.damaged)
    program = join(recording)
    steps = find_steps(program, step)
    samples = read_samples(folder)
    findings = causes.find_memory(program, steps, samples)
    lines = report.render(program, samples, findings)
    lines.append(f"Profile: {folder}")
    show_text("\n".join(lines))
