# SPDX-License-Identifier: Apache-2.0
"""Check what a signal to `dataflow nodes` does, with a shell in the place of the nodes."""

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT

from dataflow.errors import INTERRUPTS

PROGRAM = """
import signal, subprocess, sys
from dataflow.commands import nodes
from dataflow.errors import run_main

nodes.INTERRUPT_SECONDS = 0.3
run_main(lambda: nodes.wait_for_nodes(subprocess.Popen(["sh", "-c", sys.argv[1]])))
"""


def run(shell_script: str, **options) -> int:
    """Return the exit code of a process that waits for this script."""
    command = [sys.executable, "-c", PROGRAM, f"sleep 0.3; {shell_script}"]
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=20, **options)
    return done.returncode


@pytest.mark.parametrize("number", INTERRUPTS)
def test_a_signal_to_this_process_alone_ends_the_nodes(number):
    def listen():
        # A background job of a shell ignores SIGQUIT, and a command of nohup ignores SIGHUP.
        signal.signal(number, signal.SIG_DFL)

    begin = time.monotonic()
    assert run(f"kill -{number:d} $PPID; exec sleep 15", preexec_fn=listen) == 130
    assert time.monotonic() - begin < 10


def test_a_command_that_ends_soon_after_an_interrupt_keeps_its_exit_code():
    assert run("kill -INT $PPID; sleep 0.1; exit 5") == 5


def test_nodes_that_nohup_has_started_outlive_their_terminal():
    def ignore_hangup():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    assert run("kill -HUP $PPID; sleep 0.6; exit 3", preexec_fn=ignore_hangup) == 3


def test_after_ctrl_c_in_a_terminal_the_command_decides_when_it_ends():
    master, slave = os.openpty()

    script = "trap 'sleep 1; exit 7' INT; sleep 0.3; echo began; while :; do sleep 0.1; done"
    process = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-c", PROGRAM, script],
        cwd=ROOT,
        stdin=slave,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"began\n"
    os.write(master, b"\x03")
    try:
        assert process.wait(15) == 7
    finally:
        process.kill()
        process.communicate()
        os.close(master)
        os.close(slave)
