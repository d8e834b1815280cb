# SPDX-License-Identifier: Apache-2.0
"""Timing the user's functions changes nothing that they get or return."""

import asyncio
import inspect
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from raymeter.inside import runs


@pytest.fixture
def recorded():
    return []


def time_it(function, recorded):
    return runs.make_timed(function, lambda run, _: recorded.append(run))


def test_a_function_returns_what_it_returns_and_is_written_if_it_takes_long(recorded, monkeypatch):
    def work(seconds, factor=1):
        time.sleep(seconds)
        return factor * seconds

    timed = time_it(work, recorded)
    monkeypatch.setattr(runs, "MIN_SECONDS", 100)
    assert timed(0.0) == 0.0
    assert not recorded
    monkeypatch.setattr(runs, "MIN_SECONDS", 0.005)
    assert timed(0.01, factor=2) == 0.02
    assert recorded[0].kind == "function"
    assert recorded[0].code_seconds >= 0.01
    assert recorded[0].cpu_seconds < recorded[0].code_seconds


def test_after_many_short_runs_no_clock_is_read_until_one_is_long(recorded, monkeypatch):
    read = []

    def read_clock():
        read.append(True)
        return 0.0

    monkeypatch.setattr(time, "process_time", read_clock)
    timed = time_it(time.sleep, recorded)
    for _ in range(2 * runs.MANY_SHORT):
        timed(0.0)
    assert len(read) <= runs.MANY_SHORT
    timed(0.01)  # nobody knows its CPU time
    assert not recorded
    timed(0.01)
    assert len(recorded) == 1


def test_an_error_reaches_the_caller(recorded):
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        time_it(fail, recorded)()


def test_a_coroutine_has_a_block_only_where_it_does_not_await(recorded):
    async def work(seconds):
        await asyncio.sleep(seconds)
        time.sleep(seconds)
        return "done"

    coroutine = time_it(work, recorded)(0.02)
    assert inspect.iscoroutine(coroutine)
    assert asyncio.run(coroutine) == "done"
    (run,) = recorded
    assert run.kind == "coroutine"
    in_blocks = sum(seconds for _, seconds, _ in run.blocks)
    assert in_blocks + 0.02 <= time.time() - run.start  # it awaited in none of them
    _, seconds, cpu_seconds = max(run.blocks, key=lambda block: block[1])
    assert seconds >= 0.02
    assert cpu_seconds < seconds  # it used no processor


def test_a_coroutine_can_be_cancelled_and_handles_it(recorded):
    async def work():
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "handled"

    async def cancel():
        task = asyncio.ensure_future(time_it(work, recorded)())
        await asyncio.sleep(0.01)
        task.cancel()
        return await task

    assert asyncio.run(cancel()) == "handled"


def test_a_generator_stays_one_and_has_times_of_its_items(recorded):
    def work():
        for number in range(3):
            time.sleep(0.003)
            yield number

    generator = time_it(work, recorded)()
    assert inspect.isgenerator(generator)
    items = []
    for item in generator:
        time.sleep(0.005)  # Ray sends it
        items.append(item)
    assert items == [0, 1, 2]
    (run,) = recorded
    assert run.count == 3
    assert run.line == f"{__file__}:{work.__code__.co_firstlineno + 3}"  # of the yield
    assert run.items == sorted(run.items)
    sending = [asked - given for given, asked in zip(run.items[0::2], run.items[1::2], strict=True)]
    assert len(sending) == 3
    assert min(sending) >= 0.005


def test_a_generator_that_is_closed_is_closed_inside(recorded):
    closed = []

    def work():
        try:
            yield 1
        finally:
            closed.append(True)

    generator = time_it(work, recorded)()
    next(generator)
    generator.close()
    assert closed == [True]
    assert recorded[0].count == 1


def test_a_generator_gets_what_is_sent_or_thrown_into_it(recorded):
    def work():
        seconds = yield "item"  # as a task of Ray Data, which Ray tells how long it has stored an item
        try:
            yield seconds
        except KeyError:
            yield "handled"

    generator = time_it(work, recorded)()
    assert next(generator) == "item"
    assert generator.send(0.5) == 0.5
    assert generator.throw(KeyError("made")) == "handled"
    assert list(generator) == []
    assert recorded[0].count == 3


def test_an_async_generator_gets_what_is_sent_or_thrown_into_it(recorded):
    async def work():
        seconds = yield "item"
        try:
            yield seconds
        except KeyError:
            yield "handled"

    async def collect():
        generator = time_it(work, recorded)()
        first = await anext(generator)
        second = await generator.asend(0.5)
        third = await generator.athrow(KeyError("made"))
        rest = [item async for item in generator]
        return first, second, third, rest

    assert asyncio.run(collect()) == ("item", 0.5, "handled", [])
    assert recorded[0].count == 3


def test_an_async_generator_stays_one(recorded):
    async def work():
        for number in range(2):
            yield number

    async def collect():
        generator = time_it(work, recorded)()
        assert inspect.isasyncgen(generator)
        return [item async for item in generator]

    assert asyncio.run(collect()) == [0, 1]
    assert recorded[0].count == 2


def test_an_async_generator_awaits_in_a_time_that_is_not_its_own(recorded):
    async def work():
        for number in range(3):
            await asyncio.sleep(0.05)
            yield number

    async def collect():
        async for _ in time_it(work, recorded)():
            await asyncio.sleep(0.02)  # Ray sends it

    asyncio.run(collect())
    (run,) = recorded
    assert run.code_seconds < 0.03 < 0.15 <= run.awaited_seconds
    assert run.code_seconds + run.awaited_seconds < time.time() - run.start - 3 * 0.02
    sending = [asked - given for given, asked in zip(run.items[0::2], run.items[1::2], strict=True)]
    assert len(sending) == 3
    assert min(sending) >= 0.02


def test_a_coroutine_awaits_in_a_time_that_is_not_its_own(recorded):
    async def work():
        await asyncio.sleep(0.05)

    asyncio.run(time_it(work, recorded)())
    (run,) = recorded
    assert run.code_seconds < 0.03 < 0.05 <= run.awaited_seconds


def test_an_async_generator_can_be_cancelled_and_handles_it(recorded):
    async def work():
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            yield "handled"

    async def cancel():
        task = asyncio.ensure_future(anext(time_it(work, recorded)()))
        await asyncio.sleep(0.01)
        task.cancel()
        return await task

    assert asyncio.run(cancel()) == "handled"


def test_an_async_generator_that_is_closed_is_closed_inside(recorded):
    closed = []

    async def work():
        try:
            yield 1
        finally:
            closed.append(True)

    async def close():
        generator = time_it(work, recorded)()
        await anext(generator)
        await generator.aclose()

    asyncio.run(close())
    assert closed == [True]
    assert recorded[0].count == 1


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def run_in_thread() -> None:
    thread = threading.Thread(target=spin, args=(0.03,))
    thread.start()
    thread.join()


def test_what_other_threads_compute_is_in_the_time_of_the_process(recorded, monkeypatch):
    monkeypatch.setattr(runs, "has_had_children", lambda: False)  # as tests have
    time_it(run_in_thread, recorded)()
    (run,) = recorded
    assert run.cpu_seconds < 0.02
    assert run.process_seconds >= 0.03
    assert run.peak_bytes > 2**20


CHILDREN = """
import subprocess, sys
from raymeter.inside.runs import has_had_children
print(has_had_children())
child = subprocess.Popen([sys.executable, "-c", "sum(range(10**6))"])
print(has_had_children())
child.wait()
print(has_had_children())
"""


def test_children_that_run_or_have_run_are_seen():
    words = [sys.executable, "-c", CHILDREN]
    source = str(Path(runs.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source}
    printed = subprocess.run(
        words, capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert printed.split() == ["False", "True", "True"]
