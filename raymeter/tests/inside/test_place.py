# SPDX-License-Identifier: Apache-2.0
"""The line of the user's code that calls Ray is found, and never one of Python's own or of Ray."""

import asyncio
import functools
import sys
from types import SimpleNamespace

from raymeter.inside import calls, place, ray_internals

HERE = __file__


def test_each_line_of_a_function_is_its_own():
    first = place.find_line()
    second = place.find_line()
    (file, _, number), (_, _, later) = first[0].rpartition(":"), second[0].rpartition(":")
    assert (file, int(later)) == (HERE, int(number) + 1)
    assert first[1] == "test_each_line_of_a_function_is_its_own"


def call_in_comprehension():
    lines = [place.find_line() for _ in range(1)]
    return lines[0]


def call_in_lambda(call=lambda: place.find_line()):
    return call()


def test_a_comprehension_has_the_name_of_the_function_around_it():
    assert call_in_comprehension()[1] == "call_in_comprehension"
    assert call_in_lambda()[1] == "call_in_lambda"


def test_an_event_loop_alone_is_no_line(monkeypatch):
    code = asyncio.events.Handle._run.__code__
    monkeypatch.setattr(place, "kinds", {})
    assert place.kind_of(code) == place.SKIPPED


def test_a_task_has_the_line_of_its_function(monkeypatch):
    @functools.wraps(call_in_lambda)
    def wrapper():
        return call_in_lambda()

    monkeypatch.setattr(ray_internals, "running_functions", lambda: [wrapper, wrapper])
    assert place.running_line("task") == f"{HERE}:{call_in_lambda.__code__.co_firstlineno}"
    monkeypatch.setattr(
        ray_internals, "running_functions", lambda: [wrapper, call_in_comprehension]
    )
    assert place.running_line("task") == ""


class Exported:
    """A function of the script as Ray's workers know it."""

    function_name = "__main__.call_in_lambda"
    function = staticmethod(call_in_lambda)


class Worker:
    """What is used of a worker of Ray that runs a task, which has the name of the script's file."""

    current_task_function_name = "test_place.call_in_lambda"
    function_actor_manager = SimpleNamespace(_function_execution_info={1: Exported()})


def test_a_running_task_of_the_script_is_known_by_its_name_without_the_module(monkeypatch):
    monkeypatch.setattr(ray_internals, "worker", Worker())
    monkeypatch.setattr(ray_internals, "is_worker", lambda: True)
    assert ray_internals.running_functions() == [call_in_lambda]
    Worker.current_task_function_name = "other"
    assert ray_internals.running_functions() == []


class ExecutableTask:
    """As in Ray's compiled graphs."""

    method_name = "forward"

    def exec_operation(self):
        return ray_internals.compiled_method()


class Policy:
    def forward(self):
        pass


def test_a_compiled_graph_has_the_line_of_the_method_that_it_runs(monkeypatch):
    assert ExecutableTask().exec_operation() == "forward"
    assert ray_internals.compiled_method() == ""
    monkeypatch.setattr(ray_internals, "current_actor", Policy)
    monkeypatch.setattr(ray_internals, "compiled_method", lambda: "forward")
    line = f"{HERE}:{Policy.forward.__code__.co_firstlineno}"
    assert place.running_line("Policy.__ray_call__") == line


def number_in_comprehension():
    numbers = [place.number_frames(place.find_frame()) for _ in range(3)]
    return numbers


def test_calls_of_one_run_of_a_function_have_its_number():
    first = number_in_comprehension()
    second = number_in_comprehension()
    assert first[0] == first[1] == first[2]
    assert first[0] != second[0]
    assert len(first[0]) == place.MAX_MARKED


def test_calls_of_one_caller_have_its_number():
    def call():
        return place.number_frames(place.find_frame())

    inner, outer = call()[:2]
    later_inner, later_outer = call()[:2]
    assert inner != later_inner
    assert outer == later_outer


def test_a_debugger_keeps_the_place_of_the_number(monkeypatch):
    frame = sys._getframe()
    tracing = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert place.number_frames(frame) == ()
        assert frame.f_trace is None
    finally:
        sys.settrace(tracing)
    place.number_frames(frame)
    mine = place.Mark((1,))
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    assert mine(frame, "line", None) is None


def test_a_frame_with_a_function_of_a_debugger_is_left_as_it_is():
    def debug(*_):
        return None

    frame = sys._getframe()
    frame.f_trace = debug
    assert place.number_frames(frame) == ()
    assert frame.f_trace is debug
    frame.f_trace = None


def test_two_calls_in_one_line_are_two_instructions():
    frame = sys._getframe()
    first, second = place.instruction_of(frame), place.instruction_of(frame)
    assert 0 <= first < second
    assert place.instruction_of(None) == -1


def call_twice(call):
    """Call Ray, as a function of a library does."""
    return call(), call()


def test_calls_in_one_run_of_a_library_have_its_number(monkeypatch):
    monkeypatch.setitem(place.kinds, id(call_twice.__code__), place.SKIPPED)
    frame = sys._getframe()

    def call():
        return place.number_entry(frame)

    first = call_twice(call)
    second = call_twice(call)
    assert first[0] == first[1] > 0
    assert second[0] == second[1] > first[1]
    assert place.number_entry(None) == 0


class OfOtherModule:
    """A function of another module with the same name."""

    function_name = "library.call_in_lambda"
    function = staticmethod(call_in_comprehension)


def test_a_result_says_that_its_worker_knows_several_functions_of_its_name(monkeypatch):
    known = {1: Exported()}
    manager = SimpleNamespace(_function_execution_info=known)
    ended = SimpleNamespace(current_task_function_name="", function_actor_manager=manager)
    monkeypatch.setattr(ray_internals, "worker", ended)
    monkeypatch.setattr(ray_internals, "is_worker", lambda: True)
    monkeypatch.setattr(ray_internals, "current_actor", lambda: None)
    events = [{"by_name": "call_in_lambda"}, {"by_name": "call_in_lambda"}]
    calls.add_line(events[0], ("", ""))
    known[2] = OfOtherModule()
    calls.add_line(events[1], ("", ""))
    assert [event["line"] for event in events] == ["", ""]
    assert [event.get("has_equal_names", False) for event in events] == [False, True]
