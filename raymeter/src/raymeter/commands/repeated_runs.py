# SPDX-License-Identifier: Apache-2.0
"""Run a program several times with the recorder, for `raymeter try` and `raymeter compare`."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raymeter.advice import Profile, advise
from raymeter.commands.output import say_damaged
from raymeter.commands.run import describe_nothing, has_recording, read_reason, remove_empty
from raymeter.errors import UserError
from raymeter.launch import INTERRUPTED, environment_of, may_be_client, run_program
from raymeter.memory.processes import ProcessSampler, peak_bytes, read_samples
from raymeter.profile.reader import read_recording

OUTPUT = "output.txt"  # of the program, in the folder of its profile
SAMPLE_SECONDS = 0.25
SHOWN_LINES = 20  # of the output of a program that fails


@dataclass(frozen=True)
class Program:
    """A program that is run several times: the words after Python, its settings, and the folder where it starts."""

    label: str
    words: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None


@dataclass
class Run:
    """One run of a program. `peak_bytes` is the largest sum of PSS over its processes; 0 if it is not known."""

    profile: Profile
    peak_bytes: int = 0

    @property
    def step_seconds(self) -> float:
        return self.profile.steps.seconds


@dataclass(frozen=True)
class Recorder:
    """How programs are recorded, and where their profiles go, each into a folder of its own."""

    folder: Path
    min_bytes: int
    step: str | None = None

    def run(self, program: Program, name: str) -> Run:
        """Run a program once; raise UserError if it fails, or if nothing of it was recorded.

        Raise KeyboardInterrupt if Ctrl-C has ended it. These runs leave no folder, because their times mean nothing.
        """
        folder = self.folder / name
        folder.mkdir(0o700, parents=True)
        print(f"  {name}: {program.label}", file=sys.stderr, flush=True)
        users = {**os.environ, **program.settings}
        is_client = may_be_client(users, program.words, program.folder)
        environment = environment_of(users, folder, self.min_bytes, is_client)
        output = folder / OUTPUT

        def watch(process: int) -> ProcessSampler:
            return ProcessSampler(process, folder, SAMPLE_SECONDS)

        with output.open("wb") as file:
            code = run_program(program.words, environment, watch, file, program.folder)
        if code == INTERRUPTED:
            self.remove(folder)
            raise KeyboardInterrupt
        if code:
            show_end(output)
            self.remove(folder)
            raise UserError(
                f"{program.label} ended with exit code {code}; the end of its output is above"
            )
        if not has_recording(folder):
            reason = read_reason(folder) or describe_nothing(code)
            self.remove(folder)
            raise UserError(f"{program.label} has no profile: {reason}")
        return read_run(folder, self.step)

    def remove(self, folder: Path) -> None:
        """Remove the folder of a run, and the one above it if it has no other run."""
        shutil.rmtree(folder, ignore_errors=True)
        if not any(path.is_dir() for path in self.folder.iterdir()):
            remove_empty(self.folder)


def show_end(output: Path) -> None:
    """Print the last lines of what a program has written."""
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines[-SHOWN_LINES:]:
        print(f"    {line}", file=sys.stderr)


def read_run(folder: Path, step: str | None) -> Run:
    """Return the run whose profile is in a folder; raise UserError if there is none."""
    recording = read_recording(folder)
    say_damaged(recording.damaged)
    profile = advise(recording, step)
    return Run(profile, peak_bytes(read_samples(folder)))


def run_interleaved(
    recorder: Recorder, programs: Sequence[Program], rounds: int
) -> list[list[Run]]:
    """Return the runs of each program. Each round runs every program once, and every second round in reverse order.

    So a machine that becomes slower changes all programs alike. Raise UserError if one of them fails.
    """
    runs: list[list[Run]] = [[] for _ in programs]
    for number in range(rounds):
        order = list(range(len(programs)))
        if number % 2:
            order.reverse()
        for position in order:
            name = f"round-{number + 1}-{position}"
            runs[position].append(recorder.run(programs[position], name))
    return runs


def seconds_of(runs: Sequence[Run]) -> list[float]:
    """Return the median step of each run."""
    return [run.step_seconds for run in runs]
