# SPDX-License-Identifier: Apache-2.0
"""Print what a command has to say. A reader that has ended, such as `head`, is no error."""

import os
import sys
from collections.abc import Sequence


def show_text(text: str) -> None:
    """Print a text. If nobody can read it, what follows is dropped, and the command goes on to its exit code."""
    try:
        print(text, flush=True)
    except OSError as error:
        drop_output()
        if not isinstance(error, BrokenPipeError):
            print(f"raymeter: standard output: {error.strerror}", file=sys.stderr)


def say_damaged(sentences: Sequence[str]) -> None:
    """Say in one line each which files of a profile cannot be read."""
    for sentence in sentences:
        print(f"raymeter: {sentence}", file=sys.stderr)


def drop_output() -> None:
    """Let standard output lead to nowhere, so that Python does not fail at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
