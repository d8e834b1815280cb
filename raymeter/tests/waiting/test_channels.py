# SPDX-License-Identifier: Apache-2.0
"""Messages in the channels of a compiled graph, whose readers poll."""

import sys
from types import SimpleNamespace

import pytest
from made_programs import Builder
from raymeter.inside import calls, ray_internals
from raymeter.profile.events import Task
from raymeter.profile.program import Program
from raymeter.profile.steps import find_steps
from raymeter.simulate.graph import build
from raymeter.simulate.predict import explains
from raymeter.simulate.without_data import without_data

STEPS = 8
STEP_SECONDS = 0.25
LINE = "/made/graph.py:9"
INPUT = f"{'a' * 48}02e1f505"
BATCH = f"{'b' * 48}02e1f505"
SMALL_BATCH = f"{'b' * 48}01e1f505"  # which was replaced by a larger one
SCORE = f"{'c' * 48}02e1f505"


def get(builder: Builder, reference: str, start: float, seconds: float, **values) -> None:
    builder.call("get", start, seconds, objects=[reference], count=1, **values)


def make_graph() -> Program:
    """Return a loop over a graph of two actors. Most of a step is pickling what one sends to the other."""
    builder = Builder()
    policy = {"place": "Policy.__ray_call__", "by": "policy"}
    reward = {"place": "Reward.__ray_call__", "by": "reward"}
    for step in range(STEPS):
        begin = 1.0 + STEP_SECONDS * step
        builder.call("channel", begin, 0.001, object=INPUT, line=LINE)
        get(builder, INPUT, begin - 0.126, 0.128, **policy)
        call = builder.call("channel", begin + 0.022, 0.1, object=BATCH, **policy)
        builder.send(call, begin + 0.022, 0.09)
        get(builder, SMALL_BATCH, begin - 0.004, 0.1, has_failed=True, **reward)
        get(builder, SMALL_BATCH, begin + 0.096, 0.02, **reward)
        get(builder, BATCH, begin + 0.116, 0.1, deserialise_seconds=0.09, **reward)
        builder.receive(
            begin + 0.124, 0.09, "Reward.__ray_call__", object=BATCH, owner_task="b" * 48
        )
        builder.call("channel", begin + 0.24, 0.001, object=SCORE, **reward)
        for poll in range(2):
            start = begin + 0.002 + 0.1 * poll
            get(builder, SCORE, start, 0.1, has_failed=True, line=LINE)
        get(builder, SCORE, begin + 0.202, 0.042, line=LINE)
    for event in builder.recording.received:
        event.process = builder.process_of("Reward.__ray_call__")
    return builder.program()


def test_a_replay_follows_what_is_written_into_channels():
    program = make_graph()
    steps = find_steps(program)
    assert (steps.count, steps.line) == (STEPS, LINE)
    program.tasks["known"] = Task("known", "main", "DRIVER_TASK")
    assert explains(build(program), steps)
    moving = without_data(program, steps)
    assert moving.saved_seconds == pytest.approx(0.19, abs=0.02)


def test_polls_of_a_channel_are_one_wait():
    program = make_graph()
    waits = [call for call in program.recording.calls if call.objects == [SCORE]]
    assert [call.seconds for call in waits] == pytest.approx([0.242] * STEPS)
    assert not [call for call in program.recording.calls if call.objects == [SMALL_BATCH]]


@pytest.mark.parametrize("ends_with_put", [True, False])
def test_polls_that_no_get_ends_are_one_get_that_has_failed(ends_with_put):
    builder = Builder()
    for poll in range(5):
        get(builder, SCORE, 1.0 + 0.1 * poll, 0.1, has_failed=True, line=LINE)
    if ends_with_put:
        builder.call("put", 1.6, 0.01, line=LINE)
    first, *others = builder.program().recording.calls
    assert (first.event, first.has_failed, first.start) == ("get", True, 1.0)
    assert first.seconds == pytest.approx(0.5)
    assert [call.event for call in others] == ["put"] * ends_with_put


def test_a_get_of_the_user_that_fails_is_no_poll_of_a_channel():
    builder = Builder()
    for number in range(3):
        get(builder, f"{'d' * 48}01000000", 1.0 + number, 0.5, has_failed=True)
    assert len(builder.program().recording.calls) == 3


@pytest.mark.parametrize(("result", "has_failed"), [(None, True), (([1], ""), False)])
def test_a_get_that_raises_an_error_has_failed(monkeypatch, result, has_failed):
    monkeypatch.setattr(calls, "write_call", lambda *_: None)
    event = {}
    calls.record_get(event, SimpleNamespace(deserialise_seconds=0.0), (None, []), {}, result)
    assert event.get("has_failed", False) is has_failed


@pytest.mark.parametrize(("name", "expected"), [("teardown", "teardown"), ("execute", "")])
def test_a_call_knows_that_ray_makes_or_ends_a_graph(monkeypatch, name, expected):
    monkeypatch.setitem(sys.modules, ray_internals.GRAPH_MODULE, sys)
    source = f"def {name}(known):\n    return known()\n"
    names = {}
    exec(compile(source, f"{ray_internals.GRAPH_FOLDER}compiled_dag_node.py", "exec"), names)
    assert names[name](ray_internals.graph_function) == expected
