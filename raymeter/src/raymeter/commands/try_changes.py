# SPDX-License-Identifier: Apache-2.0
"""Run the advice that needs no change of code: the program with and without each setting, interleaved."""

import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from raymeter.advice import Profile
from raymeter.causes.pickled import ZERO_COPY
from raymeter.commands.output import show_text
from raymeter.commands.repeated_runs import Program, Recorder, Run, run_interleaved, seconds_of
from raymeter.commands.run import make_folder
from raymeter.errors import UserError
from raymeter.launch import find_program
from raymeter.profile.events import Received, Sent
from raymeter.report.words import wrap_list
from raymeter.simulate.measured import TriedSetting, write_measured
from raymeter.statistics import Ratio, compare_pairs, describe_ratio
from raymeter.units import format_bytes, format_milliseconds

# glibc returns large blocks to the kernel when they are freed, and gets new pages for the next ones. With these
# variables it keeps them: blocks below 4 GB come from the heap (MMAP_THRESHOLD_), its top is kept (TRIM_THRESHOLD_,
# TOP_PAD_), and threads have no heaps of their own (ARENA_MAX). https://man7.org/linux/man-pages/man3/mallopt.3.html
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "67108864",
    "MALLOC_ARENA_MAX": "1",
}
KEEP_MEMORY_TITLE = "keep freed memory"
KEEP_MEMORY_PRICE = "each process keeps what it has freed, so its memory stays at its peak."
ZERO_COPY_PRICE = "tensors arrive without requires_grad, and readers must not write into them."
CLASS_PRICE = "a class of your program asks for this variable: look up what else it changes."
PAGE_BYTES = 4096
WIDTH = 80
FIRST = "first"  # folder of the run that shows which settings fit
MIN_FAULT_SHARE = 0.2  # of the bytes of the messages, in pages that the kernel had to give


@dataclass(frozen=True)
class Setting:
    """Variables of the environment that may make a program faster."""

    title: str
    variables: dict[str, str]
    price: str = ""


@dataclass(frozen=True)
class Trial:
    """The runs of a program without and with a setting."""

    setting: Setting
    before: Sequence[Run]
    after: Sequence[Run]

    @property
    def ratio(self) -> Ratio:
        return compare_pairs(seconds_of(self.before), seconds_of(self.after))

    @property
    def before_seconds(self) -> float:
        return median(seconds_of(self.before))

    @property
    def after_seconds(self) -> float:
        return median(seconds_of(self.after))


def main(arguments: Namespace) -> int:
    """Try the settings that fit, and print what they gain; the exit code is 0, whatever is found.

    Raise UserError if there is no such program, or if one of its runs fails.
    """
    words = find_program(arguments.program, arguments.module)
    folder = make_folder(arguments.output, arguments.program[0])
    recorder = Recorder(folder, arguments.min_bytes, arguments.step)
    print(announce(" ".join(arguments.program), arguments.runs), file=sys.stderr)
    first = recorder.run(Program("as it is", words), FIRST)
    settings = find_settings(first.profile)
    if not settings:
        show_text("No setting fits: no tensors, and no freed memory, are a cause in this program.")
        return 0
    programs = [Program("as it is", words)]
    programs += [Program(setting.title, words, setting.variables) for setting in settings]
    runs = run_interleaved(recorder, programs, arguments.runs)
    trials = [
        Trial(setting, runs[0], after) for setting, after in zip(settings, runs[1:], strict=True)
    ]
    show_text("\n".join(render(trials, folder)))
    write_results(folder / FIRST, trials, first.profile.steps.name)
    return 0


def write_results(folder: Path, trials: Sequence[Trial], step: str) -> None:
    """Write what was measured into the folder of the first run, so that `raymeter show` shows it.

    Raise UserError if it cannot be written.
    """
    measured = [
        TriedSetting(
            step,
            trial.setting.variables,
            trial.before_seconds,
            trial.after_seconds,
            trial.ratio.verdict,
        )
        for trial in trials
    ]
    try:
        write_measured(folder, measured)
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}. raymeter show has the predictions") from None


def announce(program: str, runs: int) -> str:
    """Say how often the program will run, before it does."""
    most = 1 + 3 * runs  # without a setting, and with each of at most two
    return (
        f"raymeter runs {program} once to see which settings fit, and then {runs} times without and {runs} times "
        f"with each of them: at most {most} runs. Its output goes to files beside the profiles."
    )


def find_settings(profile: Profile) -> list[Setting]:
    """Return at most two settings that fit a program: those of its findings, then keeping memory if much of it is new.

    A setting is left out if the program has set its variables already, to whatever value.
    """
    known = profile.program.recording.processes[0].settings
    settings: list[Setting] = []
    for finding in profile.findings:
        price = price_of(finding.settings)
        setting = Setting(" and ".join(finding.settings), finding.settings, price)
        is_new = not finding.settings.keys() <= known.keys()
        if finding.settings and is_new and setting not in settings:
            settings.append(setting)
    is_kept = KEEP_MEMORY.keys() <= known.keys()
    if not is_kept and fault_share(profile) >= MIN_FAULT_SHARE:
        settings.append(Setting(KEEP_MEMORY_TITLE, KEEP_MEMORY, KEEP_MEMORY_PRICE))
    return settings[:2]


def price_of(settings: dict[str, str]) -> str:
    """Return what the setting of a finding costs besides memory. What a prediction leaves out was measured here."""
    return ZERO_COPY_PRICE if ZERO_COPY in settings else CLASS_PRICE


def fault_share(profile: Profile) -> float:
    """Return which share of the bytes of large messages lay in new pages when they were sent or read."""
    recording = profile.program.recording
    events: list[Sent | Received] = [*recording.sent, *recording.received]
    moved = sum(event.bytes for event in events)
    new = sum(PAGE_BYTES * event.faults for event in events)
    return new / moved if moved else 0.0


def render(trials: Sequence[Trial], folder: Path) -> list[str]:
    """Return what the trials have shown, the settings that help first."""
    faster = [trial for trial in trials if trial.ratio.verdict == "faster"]
    faster.sort(key=lambda trial: trial.after_seconds - trial.before_seconds)
    others = [trial for trial in trials if trial not in faster]
    texts: list[str] = []
    for number, trial in enumerate(faster, 1):
        texts += describe_gain(number, trial)
    texts += [describe_no_gain(trial) for trial in others]
    if len(faster) > 1:
        texts.append("These settings were not measured together.")
    texts.append(explain_numbers(trials))
    texts.append(f"Profiles: {folder}")
    return wrap_list(texts, WIDTH)


def describe_gain(number: int, trial: Trial) -> list[str]:
    """Return what a setting gains, what it costs, and how to set it."""
    saved = format_milliseconds(trial.before_seconds - trial.after_seconds)
    texts = [
        f"{number}. saves {saved} per step (measured): {describe_steps(trial)}{describe_memory(trial)}",
        f"   {trial.setting.title}: set before Ray starts, on all nodes:",
        *export_lines(trial.setting),
    ]
    if trial.setting.price:
        texts.append(f"   Price: {trial.setting.price}")
    return texts


def describe_steps(trial: Trial) -> str:
    """Return "164 ms -> 119 ms (1.2 to 1.5 times as fast)"."""
    before = format_milliseconds(trial.before_seconds)
    after = format_milliseconds(trial.after_seconds)
    return f"{before} -> {after} ({describe_ratio(trial.ratio)})"


def describe_no_gain(trial: Trial) -> str:
    """Say that a setting is no advice, and why."""
    title = trial.setting.title
    steps = describe_steps(trial)
    if trial.ratio.verdict == "slower":
        return f"No advice: the steps are slower with {title}: {steps}."
    if trial.ratio.verdict == "unknown":
        return f"No advice: {title}: {steps}. Give --runs 3."
    return f"No advice: no difference with {title}: {steps}."


def describe_memory(trial: Trial) -> str:
    """Return the price in memory: the median over the runs of their peaks; "" if it is not known."""
    before = median(run.peak_bytes for run in trial.before)
    after = median(run.peak_bytes for run in trial.after)
    if not before or not after:
        return ""
    difference = math.fabs(after - before)
    word = "more" if after > before else "less"
    return f", {format_bytes(difference)} {word} memory"


def explain_numbers(trials: Sequence[Trial]) -> str:
    """Say what the interval and the memory are."""
    pairs = len(trials[0].before)
    if pairs == 1:
        return "One run each."
    return (
        f"Medians of {pairs} runs each, in turns; the interval holds the true value with a probability of 95 %. "
        "Memory: the largest sum over all processes (PSS)."
    )


def export_lines(setting: Setting) -> list[str]:
    """Return a line of a shell per variable."""
    return [f"   export {name}={value}" for name, value in setting.variables.items()]
