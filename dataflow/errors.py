# SPDX-License-Identifier: Apache-2.0
"""Define every error that the suite raises on purpose, and run the main function of a program.

Each message is one line: what is wrong, and what to do.
"""

import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from common import RecordError as RecordError  # other modules import it from here
from common import SuiteError
from common.packages import describe_missing
from common.suggestion import did_you_mean as did_you_mean

# They end a program as Ctrl-C does, so that a run keeps its times: among them, the end of a terminal (SIGHUP).
INTERRUPTS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)


class UsageError(SuiteError):
    """A request that cannot be carried out."""


class Skipped(UsageError):
    """A requirement that this machine does not meet: recorded as a skipped run."""


class RunFailed(SuiteError):
    """A run that could not start or continue. The message names the actor that is the cause."""


class ActorRaised(RunFailed):
    """An error that an actor raised. Other actors that end after it are a consequence."""


def run_main(function: Callable[..., int], *arguments: Any) -> NoReturn:
    """Call the function and end this process with the exit code that it returns.

    Other exit codes: 2 for a SuiteError or a missing package, 130 if the user or a signal interrupted the program.
    """
    for number in INTERRUPTS:
        # The command nohup ignores SIGHUP, and that stays so.
        if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    for file_number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # it is closed, and the next file that is opened would get its number
            os.open(os.devnull, os.O_RDWR)
        if file_number > 0:
            file = TolerantFile(file_number, "w", closefd=False)
            is_by_line = file_number == 2 or file.isatty()
            encoding = stream and stream.encoding
            # A terminal may lack letters such as µ.
            text = io.TextIOWrapper(
                io.BufferedWriter(file), encoding, "replace", line_buffering=is_by_line
            )
            setattr(sys, name, text)
    message = ""
    try:
        code = function(*arguments)
    except SuiteError as error:
        code = 2
        message = str(error)
    except ModuleNotFoundError as error:
        code = 2
        message = describe_missing(error.name)
    except KeyboardInterrupt:
        code = 130
        message = "interrupted"
    if message:
        print(f"error: {message}", file=sys.stderr)
    sys.stdout.flush()
    sys.exit(code)


class TolerantFile(io.FileIO):
    """The file of a standard stream. If it cannot be written, for example after `| head`, the rest goes nowhere."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.fileno() == 1 and not isinstance(error, BrokenPipeError):
                print(
                    f"warning: standard output cannot be written ({error.strerror})",
                    file=sys.stderr,
                )
            return len(data)
