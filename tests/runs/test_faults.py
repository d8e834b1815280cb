"""Provoke each fault and hostile use, and check what the command says, keeps and leaves behind.

`make faults` provokes all of them and writes results/evidence/*.jsonl; `make test` the quick ones.
"""

import re
import signal
import subprocess
import time

import psutil
import pytest
from conftest import LEAVE_SECONDS
from faults import CANNOT_PREPARE, CHAIN, FAULTS, HOSTILE, MANY, store_result

from dataflow.workers.cleanup import SHARED_MEMORY

IS_ROOT = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name, marks=() if fault.is_quick else pytest.mark.long)
                                   for fault in FAULTS + HOSTILE])  # fmt: skip
def test_a_fault_is_named_and_leaves_nothing_behind(begin_run, fault):
    if {"unshare", "setpriv"} & {*fault.where.get("prefix", ())} and not IS_ROOT:
        pytest.skip("only root can make the surroundings of this case")
    runtime, *transport = fault.command.split()
    flags = ("--transport", *transport, *fault.flags) if transport else fault.flags
    if fault.inject:
        flags += ("--inject", fault.inject)
    begin = time.monotonic()
    script = begin_run(runtime, *flags, **fault.where)
    if fault.action:
        fault.action(script)
    finished = script.finish()
    if finished.code == CANNOT_PREPARE:
        pytest.skip("this machine has no control groups of version 1")
    seconds, left = time.monotonic() - begin, script.leftovers(LEAVE_SECONDS)
    text = finished.stdout if fault.code == 0 else finished.stderr
    if fault.keeps or not text:
        text = finished.run.reason
    if "--help" not in flags:  # its last line says nothing
        table = "faults" if fault in FAULTS else "hostile"
        store_result(table, fault.name, fault.command, text.splitlines()[-1], finished.code, seconds, left)
    assert left == set()
    assert re.search(fault.expected, text, re.MULTILINE), text
    assert finished.code == fault.code and "Traceback" not in finished.stderr, finished.stderr
    if fault.code == 2:
        assert finished.stderr.count("\n") == 1, finished.stderr
    if fault.keeps:
        run = finished.run
        assert run.status == "failed" and len(run.seconds) >= fault.keeps
        assert f"error: {run.reason}\n" in finished.stderr
        last = finished.stdout.splitlines()[-1].split()[2].replace(",", "")
        assert float(last) == pytest.approx(sum(run.seconds), rel=0.01)


@pytest.mark.long
def test_the_next_run_removes_what_a_killed_script_and_guard_left_and_nothing_of_a_living_run(begin_run):
    waiting = (*MANY, *CHAIN, "--inject", "actor-1:8:stop")  # so that three runs can share two cores
    dead = begin_run("graph", "--transport", "mapped", *waiting)
    dead.wait_for_iterations(6)
    (folder,), supervisor = dead.run_folders(), psutil.Process(dead.process.pid)
    alive = begin_run("torch", "--transport", "multiprocessing", *waiting, temporary=dead.temporary)
    alive.wait_for_iterations(6)
    (guard,) = supervisor.children()
    for process in (guard, supervisor):
        process.suspend()
    for process in (guard, supervisor):
        process.kill()
    dead.process.wait()
    assert folder.exists() and (SHARED_MEMORY / folder.name).exists()

    following = begin_run("torch", "--transport", "memcpy", *CHAIN, temporary=dead.temporary).finish()
    assert following.code == 0, following.stderr
    assert not folder.exists()
    assert len(alive.run_folders()) == 1
    assert alive.process.poll() is None
    alive.process.send_signal(signal.SIGINT)
    assert alive.finish().code == 130
    assert dead.leftovers(LEAVE_SECONDS) == set()
