# SPDX-License-Identifier: Apache-2.0
"""A destructor, a signal handler or another thread may call Ray at any moment, and waits for no lock of raymeter."""

import json
import sys
import threading

import pytest
from raymeter.inside import recorder

SECONDS = 20.0  # after which a thread is taken for one that never ends


@pytest.fixture
def made(tmp_path):
    return recorder.Recorder(tmp_path, 1, [])


class Destructor:
    """What the garbage collector runs in the middle of a function: here before each of its lines."""

    def __init__(self, made):
        self.made = made
        self.is_running = False
        self.count = 0

    def trace(self, frame, event, _):
        if event == "line" and not self.is_running:
            self.is_running = True
            self.made.last_flush = 0.0
            self.made.write({"event": "call", "name": self.count})
            self.count += 1
            self.is_running = False
        return self.trace

    def run_with(self, function):
        sys.settrace(self.trace)
        function()
        sys.settrace(None)


def ends(function, *arguments) -> bool:
    """Return whether a function ends, in a thread of its own."""
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return not thread.is_alive()


def read_names(folder) -> list:
    [path] = folder.glob("*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [event["name"] for event in events if "name" in event]


@pytest.mark.parametrize("name", ["flush", "sleep_until_lines"])
def test_a_destructor_that_calls_ray_while_lines_are_taken_ends_and_its_lines_are_written(
    made, tmp_path, name
):
    made.write({"event": "put", "name": "first"})
    destructor = Destructor(made)
    assert ends(destructor.run_with, getattr(made, name))
    made.close()
    names = read_names(tmp_path)
    assert destructor.count > 1
    assert sorted(names, key=str) == sorted(["first", *range(destructor.count)], key=str)


def test_lines_stay_while_another_thread_takes_some_and_the_end_waits_for_it(made, tmp_path):
    made.lock.acquire()
    made.last_flush = 0.0
    assert ends(made.write, {"event": "put", "name": "second"})
    assert read_names(tmp_path) == []
    threading.Timer(0.2, made.lock.release).start()
    made.close()
    assert read_names(tmp_path) == ["second"]
