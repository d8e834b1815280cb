# SPDX-License-Identifier: Apache-2.0
"""Measure the messages of a Ray program that raymeter has profiled: as the program sends them, and in other ways.

    python3 -m dataflow replay raymeter-profiles/20261126T203046-train

`raymeter train.py` profiles a program (docs/profile.md).
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataflow.analysis.result import Result, group_results
from dataflow.commands import run
from dataflow.errors import UsageError
from dataflow.plan.command_line import VerbParser
from dataflow.records.files import load_all

FLOW = "flow.toml"
SUMMARY = "profile.json"
FORWARDED = "through a process that only passes it on"  # the name of a cause in raymeter
RETAINING = "MALLOC_TRIM_THRESHOLD_"  # one of the four variables that keep memory
MAX_DIFFERENCE = 0.25  # of the time in the program, within which a replay holds
OTHERS = (
    "store refs",
    "store refs --retain-memory",
    "store refs --message packed",
    "store refs --zero-copy",
    "store refs --message packed --retain-memory",
)


@dataclass(frozen=True)
class Profile:
    """What the suite needs of a profile."""

    folder: Path
    moving_seconds: float  # work of sending and reading messages per step, summed over processes
    configuration: str  # that is most like the program


def make_parser() -> VerbParser:
    """Return the parser of the flags. `run` checks whether the numbers are possible, and `load_profile` the folder."""
    parser = VerbParser(__doc__, "python3 -m dataflow replay PROFILE [flags]")
    parser.add_argument(
        "folder", type=Path, metavar="PROFILE", help="a profile that raymeter has written"
    )
    parser.add_argument(
        "--iterations", type=int, default=10, metavar="N", help="per run (%(default)s)"
    )
    parser.add_argument(
        "--runs", type=int, default=3, metavar="N", help="per configuration (%(default)s)"
    )
    parser.add_argument(
        "--warmup",
        metavar="N",
        help="untimed iterations before them (default: as many as the times need)",
    )
    parser.add_argument(
        "--allow-disturbed", action="store_true", help="count runs beside other programs, too"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be measured")
    return parser


def load_profile(folder: Path) -> Profile:
    """Return what the suite needs of a profile; raise UsageError if the folder has none."""
    for name in (FLOW, SUMMARY):
        if not (folder / name).is_file():
            raise UsageError(
                f"{folder} has no {name}: give a folder that raymeter has written, of a program with large messages"
            )
    try:
        summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        seconds = float(summary["moving"]["work_seconds"])
        configuration = choose_configuration(summary)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{folder / SUMMARY} is no summary of raymeter: {error}") from None
    return Profile(folder, seconds, configuration)


def choose_configuration(summary: dict[str, Any]) -> str:
    """Return the configuration that sends messages as the program does."""
    causes = [advice["cause"] for advice in summary["advice"]]
    configuration = "store driver-queue" if FORWARDED in causes else "store refs"
    if RETAINING in summary["settings"]:
        configuration += " --retain-memory"
    return configuration


def make_words(profile: Profile, arguments: argparse.Namespace) -> list[str]:
    """Return the words of `run`: the configuration of the program first, and then the others."""
    own = profile.configuration
    words = [own, *(other for other in OTHERS if other != own)]
    words += ["--flow", str(profile.folder / FLOW)]
    words += ["--iterations", str(arguments.iterations), "--runs", str(arguments.runs)]
    if arguments.warmup is not None:
        words += ["--warmup", arguments.warmup]
    if arguments.allow_disturbed:
        words.append("--allow-disturbed")
    if arguments.dry_run:
        words.append("--dry-run")
    return words


def judge(profile: Profile, seconds: float) -> str:
    """Return whether the suite needs about as long as the program."""
    seen = profile.moving_seconds
    verdict = f"does not hold: it differs by more than {100 * MAX_DIFFERENCE:g} %"
    if abs(seconds - seen) <= seen * MAX_DIFFERENCE:
        verdict = "holds"
    return (
        f"Messages of a step: {seen:.3g} s of work in the program, summed over its processes; {seconds:.3g} s as "
        f"{profile.configuration}. The replay {verdict}."
    )


def main(argv: Sequence[str]) -> int:
    """Measure the messages of a profile, and say whether the replay holds; return the exit code of `run`.

    With --dry-run, only print what would be measured. Raise UsageError if the folder has no profile or `run` rejects a
    flag, and RecordError if the records cannot be written.
    """
    arguments = make_parser().parse_all(argv)
    profile = load_profile(arguments.folder)
    words = make_words(profile, arguments)
    if arguments.dry_run:
        return run.main(words)
    output = choose_output(profile.folder)
    code = run.main([*words, "--output", str(output)])
    for result in group_results(load_all([output])):
        if result.label == profile.configuration:
            print(say_result(profile, result))
    return code


def choose_output(folder: Path) -> Path:
    """Return a new folder in that of the profile: "replay", or "replay-2" and so on after earlier replays."""
    output = folder / "replay"
    count = 1
    while output.exists():
        count += 1
        output = folder / f"replay-{count}"
    return output


def say_result(profile: Profile, result: Result) -> str:
    """Return what the configuration of the program says about the replay."""
    if result.run_seconds:
        return judge(profile, result.typical_seconds)
    return (
        f"Whether the replay holds is unknown: no run of {result.label} counts, as the table says."
    )
