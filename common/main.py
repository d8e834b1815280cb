"""Run the main function of a program: signals, errors in one line, exit codes, and output that nobody reads."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from common.errors import SuiteError


def run_main(function: Callable[..., int], *arguments: Any) -> NoReturn:
    """Call the function and end this process with the exit code that it returns.

    Other exit codes: 2 for an error of the user, 130 if the user interrupted the program.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
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
