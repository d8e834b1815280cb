# SPDX-License-Identifier: Apache-2.0
"""Read the command line: a verb, or a script, which is run."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from raymeter import __version__
from raymeter.commands import compare, explain, memory, run, show, try_changes
from raymeter.errors import UserError
from raymeter.launch import INTERRUPTED, read_words
from raymeter.units import parse_bytes

VERBS = ("run", "show", "try", "compare", "explain", "memory")
DESCRIPTION = """Show what an unchanged Ray program spends on moving data, where, and what to
change.

  raymeter train.py --lr 1e-4       profile a program; its flags come after it
  raymeter -m package.train         the same for a module
  raymeter show FOLDER              show a profile again
  raymeter try train.py             run it with settings that need no new code
  raymeter compare BEFORE -- AFTER  compare two programs, message by message
  raymeter memory train.py          show what fills memory, and who keeps it
  raymeter explain CAUSE            show a program before and after a change
  raymeter explain FILE             show what one message costs

raymeter VERB --help lists the flags of a verb.
"""
TRY_DESCRIPTION = """Run the advice that needs no change of code, such as variables of the
environment: the program with and without each setting, in turns, --runs times
each. Only this verb and compare start a program more than once.

For a cluster that runs already, set the variables where its nodes are started:
workers do not get them from here.
"""
COMPARE_DESCRIPTION = """Compare a program before and after a change: a row per message, and one for the
step.

  raymeter compare train.py -- train_new.py
      two programs, each with its own arguments
  raymeter compare --folders main branch -- train.py
      one program in two checkouts
  raymeter compare --set FAST=1 -- train.py
      one program without and with variables
  raymeter compare PROFILE PROFILE
      two profiles that exist: one run each, no interval

Flags of compare come first. All words after the first -- belong to the program
after the change.
"""
MEMORY_DESCRIPTION = """Run a program, and show what fills its memory: bytes in the object store,
spilled bytes, private memory by process, and who keeps objects, with the line.
With the folder of such a run, show it again.
"""
EXPLAIN_DESCRIPTION = """Show why a cause takes time, with a program before and after the change. Without
a word, list all causes.

Or show what one message costs with Ray: its fields, its pickle, and other ways
to send it, measured here. In a program: raymeter.explain(value).
"""
PROGRAM = "SCRIPT [arguments of the script]"


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(
            2, f"error: {message.removeprefix('argument ')} ({self.prog} --help lists the flags)\n"
        )


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code: that of the program for `run`, and 2 after a UserError.

    Raise SystemExit for wrong flags (with 2), --help and --version. Ctrl-C is no error: the code is INTERRUPTED.
    """
    words = list(sys.argv[1:] if words is None else words)
    verb = words.pop(0) if words and words[0] in VERBS else "run"
    try:
        return run_verb(verb, words)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("raymeter: stopped", file=sys.stderr)
        return INTERRUPTED


def run_verb(verb: str, words: Sequence[str]) -> int:
    """Run a verb with the words after it, and return its exit code. "run" is the one for any other verb.

    Raise UserError, and SystemExit for --help or wrong flags.
    """
    if verb == "show":
        return show.main(show_parser().parse_args(words))
    if verb == "try":
        return try_changes.main(parse(try_parser(), words))
    if verb == "compare":
        before, after = compare.split_words(compare.put_flags_first(words))
        return compare.main(parse(compare_parser(), before), after)
    if verb == "memory":
        return memory.main(parse(memory_parser(), words))
    if verb == "explain":
        return explain.main(explain_parser().parse_args(words))
    return run.main(parse(run_parser(), words))


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a verb that runs a program; raise SystemExit or UserError for wrong words."""
    arguments = parser.parse_args(words)
    arguments.module, arguments.program = read_words(arguments.program, arguments.module)
    return arguments


def run_parser() -> argparse.ArgumentParser:
    parser = make_parser("raymeter", DESCRIPTION, PROGRAM)
    parser.add_argument("--version", action="version", version=f"raymeter {__version__}")
    parser.add_argument(
        "--html", action="store_true", help="also write profile.html into the folder of the profile"
    )
    add_recording(parser)
    return parser


def make_parser(name: str, description: str, words: str) -> argparse.ArgumentParser:
    """Return a parser. `words` are what follows the flags, for its usage."""
    return OneLineParser(
        name,
        usage=f"{name} [flags] {words}",
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all verbs that run a program, and the program."""
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="new folder of the profile (default: in raymeter-profiles/)",
    )
    add_step(parser)
    parser.add_argument(
        "--min-bytes",
        type=size,
        default=parse_bytes("100KiB"),
        metavar="SIZE",
        help="smaller messages are only counted (default: 100KiB)",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="SCRIPT", help="a program and its arguments"
    )


def try_parser() -> argparse.ArgumentParser:
    parser = make_parser("raymeter try", TRY_DESCRIPTION, PROGRAM)
    add_runs(parser)
    add_recording(parser)
    return parser


def compare_parser() -> argparse.ArgumentParser:
    """Return the parser of `compare`, for the words before the first "--": flags, and a program or two profiles."""
    parser = make_parser("raymeter compare", COMPARE_DESCRIPTION, "BEFORE -- AFTER")
    add_runs(parser)
    parser.add_argument("--markdown", action="store_true", help="print a table for a pull request")
    parser.add_argument(
        "--folders",
        nargs=2,
        type=Path,
        metavar=("BEFORE", "AFTER"),
        help="run the program after -- in each of two folders",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of the environment that only the runs after the change have; may be repeated",
    )
    add_recording(parser)
    return parser


def memory_parser() -> argparse.ArgumentParser:
    parser = make_parser("raymeter memory", MEMORY_DESCRIPTION, PROGRAM)
    parser.add_argument(
        "--seconds",
        type=positive,
        default=0.5,
        help="time between two samples in seconds (default: 0.5)",
    )
    add_recording(parser)
    return parser


def explain_parser() -> argparse.ArgumentParser:
    """Return the parser of `explain`, whose subject is a list of words, or [] to list all causes."""
    parser = make_parser("raymeter explain", EXPLAIN_DESCRIPTION, "[CAUSE or FILE]")
    parser.add_argument(
        "subject",
        nargs="*",
        metavar="CAUSE or FILE",
        help="a cause, or a part of its name; or a message in a file: .npy, .pt or .pkl",
    )
    parser.add_argument(
        "--trust", action="store_true", help="load a file that can run code when it is loaded"
    )
    return parser


def show_parser() -> argparse.ArgumentParser:
    """Return the parser of `show`. `--html` is None if it is not given, and Path() without a file."""
    parser = OneLineParser("raymeter show", description="Show a profile that exists.")
    parser.add_argument("folder", type=Path, help="folder of the profile")
    add_step(parser)
    parser.add_argument(
        "--html",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="FILE",
        help="also write one page with timelines (default: profile.html in the folder)",
    )
    return parser


def add_step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--step",
        metavar="NAME",
        help="what begins a step, such as train.py:28, or the method that ends one, such as Trainer.train",
    )


def add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs",
        type=count,
        default=3,
        help="how often each program runs; one run has no interval (default: 3)",
    )


def count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number of runs, such as 3")
    return int(text)


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text}: give a time in seconds, such as 0.5")
    return value


def size(text: str) -> int:
    """Return the bytes of a size; argparse shows the text of the error."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
