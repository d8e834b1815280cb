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
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0"
    warning = "warning: standard output cannot be written (No space left on device)\n"
    assert done.stderr == (warning if "full" in redirection else "")


@pytest.mark.parametrize("number", INTERRUPTS)
def test_signals_interrupt_a_program_as_ctrl_c_does_unless_they_are_ignored(number):
    function = f"lambda: os.kill(os.getpid(), {number:d}) or time.sleep(0.1) or 0"
    command = [sys.executable, "-c", f"import os, time, dataflow.errors as e; e.run_main({function})"]
    for action, expected in ((signal.SIG_DFL, 130), (signal.SIG_IGN, 130 if number == signal.SIGINT else 0)):
        set_action = partial(signal.signal, number, action)
        assert subprocess.run(command, cwd=ROOT, preexec_fn=set_action, timeout=60).returncode == expected


@pytest.mark.parametrize(("error", "code", "message"), [
    (UsageError("--runs 0: give 1 or more"), 2, "error: --runs 0: give 1 or more\n"),
    (KeyboardInterrupt(), 130, "error: interrupted\n"),
])  # fmt: skip
def test_exit_codes_and_messages(capfd, error, code, message):
    def fail():
        raise error

    with pytest.raises(SystemExit) as exited:
        run_main(fail)
    assert exited.value.code == code
    assert capfd.readouterr().err.startswith(message)
