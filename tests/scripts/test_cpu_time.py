# SPDX-License-Identifier: Apache-2.0
"""Test the CPU time of a run, and what is known about the load of the machine."""

import os
import signal
import time

import psutil
import pytest

from common import cpu_time as cpu_times
from common.cpu_time import CpuTime
from common.record import ScriptRun


def spin(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_cpu_time_is_that_of_all_descendants_and_the_rest_of_the_machine_is_other_programs(
    monkeypatch,
):
    seconds = [(5.0, 1.0), (17.0, 4.0)]  # of all processes, and of the hypervisor
    monkeypatch.setattr(cpu_times, "read_cpu_seconds", lambda: seconds.pop(0))
    cpu_time = CpuTime()
    own, begin = cpu_time._total, time.monotonic()
    cpu_time.start()
    time.sleep(0.2)
    cpu_time.stop()
    assert cpu_time.seconds < 0.1
    cpu_time.start()
    child = os.fork()
    if not child:
        spin(0.4)
        time.sleep(60)
        os._exit(0)
    spin(0.2)
    while sum(psutil.Process(child).cpu_times()[:2]) < 0.3:
        time.sleep(0.01)
    cpu_time.stop()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)  # it ends after its clock was read, and counts
    assert 0.45 < cpu_time.seconds < 0.9
    spin(0.2)  # after `stop`
    run = ScriptRun()
    cpu_time.save_machine_use(run)
    length, used = time.monotonic() - begin, cpu_time._total - own
    assert cpu_time.seconds < 0.9 and used >= 0.65
    assert run.other_cores == pytest.approx((12 - used) / length, rel=0.05)
    assert run.steal_cores == pytest.approx(3 / length, rel=0.05)
    assert run.disturbance


def test_the_cpu_time_of_a_process_that_begins_between_two_periods_does_not_count():
    """It verifies messages, for example, before the next iterations begin."""
    cpu_time = CpuTime()
    cpu_time.start()
    cpu_time.stop()
    child = os.fork()
    if not child:
        spin(0.5)
        time.sleep(60)
        os._exit(0)
    while sum(psutil.Process(child).cpu_times()[:2]) < 0.45:
        time.sleep(0.01)
    cpu_time.start()
    spin(0.2)
    cpu_time.stop()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert 0.2 <= cpu_time.seconds < 0.4
    assert cpu_time._total > 0.6  # it is a part of this run
