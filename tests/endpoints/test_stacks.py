# SPDX-License-Identifier: Apache-2.0
"""Ask processes where they are: also one that holds the interpreter's lock in C, and one that does not answer."""

import multiprocessing
import signal
import subprocess
import sysconfig
from pathlib import Path

import pytest

from dataflow.endpoints import stacks
from dataflow.endpoints.stacks import (
    ask_for_stacks,
    name_waits,
    stacks_path,
    write_stacks_on_signal,
)

STDLIB = sysconfig.get_paths()["stdlib"]
HERE = Path(__file__).name
WRITTEN = f"""Thread 0x00007f0000000002 (most recent call first):
  File "{STDLIB}/threading.py", line 331 in wait
  File "/site-packages/ray/_private/gc_collect_manager.py", line 29 in run

Thread 0x00007f0000000001 (most recent call first):
  File "/site-packages/ray/rdt_store.py", line 285 in wait_and_pop_object
  File "/site-packages/ray/worker.py", line 950 in deserialize_objects

Thread 0x00007f0000000003 (most recent call first):
  File "/site-packages/ray/_private/worker.py", line 3009 in wait
  File "/site-packages/ray/rdt_manager.py", line 300 in _monitor_failures

Current thread 0x00007f0000000000 (most recent call first):
  File "/site-packages/ray/_private/worker.py", line 1069 in main_loop
  File "/site-packages/ray/default_worker.py", line 323 in <module>
"""


def wait_in_c(folder, is_ready):
    """Wait as a library does that keeps the interpreter's lock. The handler ends one pause, so there are more."""
    import ctypes

    (folder / "progress").touch()
    write_stacks_on_signal(folder)
    is_ready.set()
    pause = ctypes.PyDLL(None).pause
    while True:
        pause()


@pytest.fixture
def waiting(tmp_path):
    """Return a process that waits in C."""
    context = multiprocessing.get_context("spawn")
    is_ready = context.Event()
    process = context.Process(target=wait_in_c, args=(tmp_path, is_ready), daemon=True)
    process.start()
    assert is_ready.wait(60)
    yield process
    process.kill()
    process.join()


def test_a_process_that_waits_in_c_says_where_each_time_it_is_asked(tmp_path, waiting):
    for _ in range(2):
        (place,) = name_waits(ask_for_stacks(tmp_path, waiting.pid))
        assert place.startswith(f"wait_in_c ({HERE}:")


def test_a_process_that_is_stopped_or_has_no_handler_gives_no_stacks(
    tmp_path, waiting, monkeypatch
):
    monkeypatch.setattr(stacks, "WAIT_SECONDS", 0.2)
    stacks.os.kill(waiting.pid, signal.SIGSTOP)
    assert ask_for_stacks(tmp_path, waiting.pid) == ""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        stacks_path(tmp_path, sleeper.pid).touch()  # of an earlier process with this id
        assert ask_for_stacks(tmp_path, sleeper.pid) == ""
        assert sleeper.poll() is None
        sleeper.kill()
        sleeper.wait()
        assert ask_for_stacks(tmp_path, sleeper.pid) == ""


def test_threads_that_wait_for_work_are_left_out():
    assert name_waits(WRITTEN) == ["wait_and_pop_object (rdt_store.py:285)"]


def test_without_the_folder_of_the_run_nothing_is_written(tmp_path):
    for elsewhere in (tmp_path, tmp_path / "of another machine"):
        write_stacks_on_signal(elsewhere)
    assert [*tmp_path.iterdir()] == []
