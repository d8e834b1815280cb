"""Read the command line: a verb, or a script, which is run."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from raymeter import __version__
from raymeter.commands import run, show
from raymeter.errors import UserError
from raymeter.units import parse_bytes

VERBS = ("run", "show", "try", "compare", "explain", "memory")
DESCRIPTION = """Show what an unchanged Ray program spends on moving data, where, and what to change.

  raymeter train.py --lr 1e-4        run a program, and show its profile; flags after the script are its own
  raymeter -m package.train          the same for a module
  raymeter show FOLDER               show a profile again
"""


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(
            2, f"error: {message.removeprefix('argument ')} (raymeter --help lists the flags)\n"
        )


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code: that of the program for `run`, and 2 for a wrong command."""
    words = list(sys.argv[1:] if words is None else words)
    verb = words.pop(0) if words and words[0] in VERBS else "run"
    try:
        if verb == "show":
            return show.main(show_parser().parse_args(words))
        return run.main(run_parser().parse_args(words))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run_parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = OneLineParser(
        "raymeter", description=DESCRIPTION, allow_abbrev=False, formatter_class=formatter
    )
    parser.add_argument("--version", action="version", version=f"raymeter {__version__}")
    parser.add_argument(
        "--output", type=Path, help="new folder of the profile (default: in raymeter-profiles/)"
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
    return parser


def show_parser() -> argparse.ArgumentParser:
    parser = OneLineParser("raymeter show", description="Show a profile that exists.")
    parser.add_argument("folder", type=Path, help="folder of the profile")
    add_step(parser)
    return parser


def add_step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--step",
        metavar="NAME",
        help="what begins a step, such as train.py:28, or the method that ends one, such as Trainer.train",
    )


def size(text: str) -> int:
    """Return the bytes of a size; argparse shows the text of the error."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
