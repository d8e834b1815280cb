"""Define every error that the suite raises on purpose, and run the main function of a program.

Each message is one line: what is wrong, and what to do.
"""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NoReturn


class SuiteError(Exception):
    """An error that users see without a traceback."""


class UsageError(SuiteError):
    """A request that cannot be carried out."""


class Skipped(UsageError):
    """A requirement that this machine does not meet: recorded as a skipped run."""


class RecordError(SuiteError):
    """A record that cannot be read or written."""


class RunFailed(SuiteError):
    """A run that could not start or continue. The message names the actor that is the cause."""


class ActorRaised(RunFailed):
    """An error that an actor raised. Other actors that end after it are a consequence."""


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """Return a part of a message with the most similar name, or nothing."""
    similar = get_close_matches(text, list(names), 1)
    return f": did you mean {similar[0]}?" if similar else ""


def run_main(function: Callable[..., int], *arguments: Any) -> NoReturn:
    """Call the function and end this process with the exit code that it returns.

    Other exit codes: 2 for an error of the user, 130 if the user interrupted the program.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack letters such as µ
    code, message = 1, ""  # if nobody reads the output
    try:
        with tolerate_closed_output():
            code = function(*arguments)
    except SuiteError as error:
        code, message = 2, str(error)
    except KeyboardInterrupt:
        code, message = 130, "interrupted"
    if message:
        print(f"error: {message}", file=sys.stderr)
    sys.exit(code)


@contextmanager
def tolerate_closed_output() -> Iterator[None]:
    """Flush standard output at the end of the block. After `| head` has closed it, print to nowhere."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
