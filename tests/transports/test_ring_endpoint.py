"""Endpoints that send handles: what is verified, what is rejected, and how long a reader may hold a message."""

import os
import tempfile
from pathlib import Path

import pytest
import torch
from in_process import COLOCATED, DEMO, RICH, LocalRingEndpoints, on_edge

from dataflow.errors import RunFailed
from dataflow.flows.catalogue import build_flow
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import Field, Message

TIMEOUT = 0.1  # seconds of an iteration; a sender waits for half of it
K = 4  # iterations in flight
LATE = Message((Field("empty", "float32", (0,)), Field("number", "int64", (1,))))
LATE_TENSOR = Flow("late", "late", LATE, (Task("one", (DRIVER,), LATE), Task("two", ("one",), LATE)), ("two",))
FORK = Flow("fork", "fork", LATE, tuple(Task(n, (DRIVER,), LATE, actor="one") for n in ("a", "b")), ("a", "b"))
SCATTER = build_flow("scatter-gather", {"message_bytes": 13, "actors": 3})
MODES = [  # message, flags, iterations between verifications
    ("fields", {}, 1), ("packed", {}, 20), ("packed", {"copy_out": True, "in_flight": K}, 11),
    ("fields", {"copy_in": True, "copy_out": True, "in_flight": K}, K), ("jagged", {"copy_in": True}, 20),
]  # fmt: skip


@pytest.fixture
def make():
    """Return a function that makes the endpoints of a flow; the file names of their rings end with the test."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix=f"test-ring-{os.getpid()}-") as folder:
        yield lambda flow=DEMO, **options: LocalRingEndpoints(flow, Path(folder), timeout=TIMEOUT, **options)


@pytest.mark.parametrize("flow", [DEMO, RICH, COLOCATED, LATE_TENSOR, FORK, SCATTER], ids=lambda flow: flow.name)
@pytest.mark.parametrize(("message", "options", "group"), MODES, ids=str)
def test_iterations_by_handle_arrive_unchanged_as_views_or_copies(make, flow, message, options, group):
    endpoints = make(flow, message=message, **options)
    for first in range(1, 3 * group + 1, group):
        for number in range(first, first + group):
            endpoints.run(number)
        assert endpoints.verify(first, number) == {}
        assert endpoints.views == dict.fromkeys(map(str, flow.edges), "copy_out" not in options)


@pytest.mark.parametrize("handle", [["policy", 1], ["reference", 2]], ids=["old message", "another sender"])
def test_a_handle_of_another_message_that_is_there_is_found_by_the_verification(make, handle):
    endpoints = make()
    endpoints.run(1)
    endpoints.verify(1)
    endpoints.run(2, on_edge("policy -> reward", lambda _: handle))
    wrong = endpoints.verify(2)
    assert list(wrong) == ["policy -> reward"] and wrong["policy -> reward"] > 20_000


@pytest.mark.parametrize(
    ("handle", "error"),
    [
        (["driver", 5], "policy received the handle of message 5 of driver, but"),
        (["nobody", 1], "policy received a handle of nobody"),
        (["reference", 1], "policy received a handle of reference"),
        (None, "policy expected a handle, got NoneType"),
        (torch.ones(8), "policy expected a handle, got Tensor"),
    ],
)
def test_what_is_no_handle_of_a_message_for_the_task_is_rejected(make, handle, error):
    with pytest.raises(RunFailed, match=error):
        make().run(1, on_edge("driver -> policy", lambda _: handle))


def test_a_sender_that_waits_for_the_oldest_result_can_send_all_that_may_be_in_flight(make):
    """A reader may be as far behind as iterations are in flight, if it waits until a result has been read."""
    endpoints = make(in_flight=K)
    handles = {}
    for number in range(1, 6 * K):
        handles[number] = endpoints.make_query(number)  # raises if a slot is never released
        if number > K:
            endpoints.actors["policy"].open("policy", handles[number - K])
