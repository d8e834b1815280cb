# SPDX-License-Identifier: Apache-2.0
"""Check the exit codes and the standard streams of a program that ends."""

import signal
import subprocess
import sys
from functools import partial

import pytest
from conftest import ROOT

from dataflow.errors import INTERRUPTS, UsageError, run_main


@pytest.mark.parametrize("redirection", ["| head -1", ">/dev/full", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_or_full_change_no_exit_code(redirection):
    code = "import dataflow.errors as e; e.run_main(lambda: [print('x' * 10**5, flush=True) for _ in range(9)] and 0)"
    command = f'"{sys.executable}" -c "{code}" {redirection}; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, check=False, text=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "0"
    warning = "warning: standard output cannot be written (No space left on device)\n"
    assert done.stderr == (warning if "full" in redirection else "")


@pytest.mark.parametrize("number", INTERRUPTS)
def test_signals_interrupt_a_program_as_ctrl_c_does_unless_they_are_ignored(number):
    function = f"lambda: os.kill(os.getpid(), {number:d}) or time.sleep(0.1) or 0"
    command = [
        sys.executable,
        "-c",
        f"import os, time, dataflow.errors as e; e.run_main({function})",
    ]
    for action, expected in (
        (signal.SIG_DFL, 130),
        (signal.SIG_IGN, 130 if number == signal.SIGINT else 0),
    ):
        set_action = partial(signal.signal, number, action)
        done = subprocess.run(
            command,
            cwd=ROOT,
            preexec_fn=set_action,
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
        )
        assert (done.returncode, "error: interrupted\n" in done.stderr) == (
            expected,
            expected == 130,
        )


def test_an_error_of_the_user_is_one_line_and_exit_code_2(capfd):
    def fail():
        raise UsageError("--runs 0: give 1 or more")

    with pytest.raises(SystemExit) as exited:
        run_main(fail)
    assert (exited.value.code, capfd.readouterr().err) == (2, "error: --runs 0: give 1 or more\n")
