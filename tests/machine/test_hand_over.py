"""The floor of handing over: words through pipes, between processes that are gone afterwards."""

import os
import time

import psutil
import pytest

from common.flow.catalogue import build_flow
from common.machine import hand_over
from common.machine.cpu import CpuTime


@pytest.mark.parametrize("name", ["online-dpo", "ppo", "round-trip", "chain", "scatter-gather", "dpo"])
def test_every_pass_goes_through_all_tasks_and_nothing_stays(name):
    files, children = os.listdir("/proc/self/fd"), psutil.Process().children()
    samples = hand_over.measure_hand_over(build_flow(name, {}), passes=20)
    assert len(samples) == 20 and min(samples) > 0
    assert os.listdir("/proc/self/fd") == files and psutil.Process().children() == children


def test_the_clock_waits_for_the_last_task(monkeypatch):
    read = os.read

    def slow_read(fd, count):
        found = read(fd, count)
        if found and os.getpid() != test_process:
            time.sleep(0.01)
        return found

    test_process = os.getpid()
    monkeypatch.setattr(hand_over.os, "read", slow_read)
    flow = build_flow("chain", {"roles": 3})
    assert min(hand_over.measure_hand_over(flow, passes=3)) > 3 * 0.01


def test_the_cpu_time_is_that_of_all_descendants_between_start_and_stop():
    def spin(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    cpu = CpuTime()
    cpu.start()
    time.sleep(0.2)
    cpu.stop()
    assert cpu.seconds < 0.1
    cpu.start()
    child = os.fork()
    if not child:
        spin(0.3)
        time.sleep(60)
    spin(0.2)
    while time.clock_gettime((~child << 3) | 2) < 0.3:
        time.sleep(0.01)
    cpu.stop()
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert 0.45 < cpu.seconds < 0.9
    spin(0.2)  # after it was stopped
    assert cpu.seconds < 0.9
