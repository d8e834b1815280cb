"""Participants whose messages are handles: what is checked, what is refused, and who may hold what for how long."""

import tempfile
from pathlib import Path

import pytest
import torch
from payload_ends import COLOCATED, DEMO, RICH, RingEnds, on

from common.errors import RunFailed, SegmentError
from common.flow.catalogue import chain, ppo, scatter_gather
from common.flow.flow import DRIVER, Flow, Task
from common.flow.message import Field, Message

SECONDS = 0.1  # of a trip; a ring's writer waits for half of it
K = 4
LATE = Message((Field("empty", "float32", (0,)), Field("number", "int64", (1,))))
HOLLOW = Flow("hollow", "hollow", LATE, (Task("one", (DRIVER,), LATE), Task("two", ("one",), LATE)), ("two",))
FLOWS = [DEMO, RICH, COLOCATED, HOLLOW, ppo(3, 5, 4), chain(13, 2), scatter_gather(1, 3)]


@pytest.fixture
def make():
    """make(flow, **options) -> its ends, whose rings' names go with the test."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="test-ring-") as folder:
        yield lambda flow=DEMO, **options: RingEnds(flow, Path(folder), timeout=SECONDS, **options)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
@pytest.mark.parametrize("message", ["fields", "packed"])
@pytest.mark.parametrize("copy_out", [False, True])
@pytest.mark.parametrize(("in_flight", "episode"), [(1, 1), (1, 20), (K, K), (K, 11)])
def test_trips_by_handle_arrive_right_and_mapped_or_copied_out(make, flow, message, copy_out, in_flight, episode):
    ends = make(flow, message=message, copy_out=copy_out, in_flight=in_flight, episode=episode)
    for first in range(1, 3 * episode + 1, episode):
        for number in range(first, first + episode):
            ends.send(number)
        assert ends.verify(first, number) == {}
        assert ends.mapped == dict.fromkeys(map(str, flow.edges), not copy_out)


@pytest.mark.parametrize("handle", [["policy", 1], ["reference", 2]], ids=["of the trip before", "of another sender"])
def test_a_handle_of_what_is_there_but_was_not_meant_is_wrong(make, handle):
    """Its message lies there, so only the check can tell."""
    ends = make()
    ends.send(1)
    ends.verify(1)
    ends.send(2, on("policy -> reward", lambda _: handle))
    wrong = ends.verify(2)
    assert list(wrong) == ["policy -> reward"] and wrong["policy -> reward"] > 20_000


@pytest.mark.parametrize(
    ("edge", "handle"),
    [("policy -> reward", ["policy", 5]), ("driver -> policy", ["nobody", 1]), ("driver -> policy", ["reference", 1])],
    ids=["of another trip", "of nobody", "of one that it does not read"],
)
def test_a_handle_of_what_a_task_is_not_to_read_is_refused_by_it(make, edge, handle):
    reader = edge.split(" -> ")[1]
    with pytest.raises(SegmentError, match=f"{reader} was handed message {handle[1]} of {handle[0]}"):
        make().send(1, on(edge, lambda _: handle))


@pytest.mark.parametrize("handle", [None, ValueError("lost"), torch.ones(8), "policy"], ids=str)
def test_anything_but_a_handle_is_refused(make, handle):
    with pytest.raises(RunFailed, match=f"policy expected a handle, got {type(handle).__name__}"):
        make().actors["policy"].forward_step("policy", handle)


@pytest.mark.parametrize("flow", [DEMO, RICH, HOLLOW], ids=lambda flow: flow.name)
@pytest.mark.parametrize("message", ["fields", "packed"])
def test_what_lies_in_a_ring_has_the_handle_of_its_message_and_a_copy_has_none(make, flow, message):
    driver = make(flow, message=message).driver
    for number in range(1, 4):
        payload = driver.emit(number)
        tensors = [payload] if isinstance(payload, torch.Tensor) else list(payload.values())
        tensor = next(one for one in tensors if one.nbytes)
        assert driver.handle_of(tensor) == driver.handle(DRIVER) == [DRIVER, number]
        with pytest.raises(SegmentError, match="driver was to send a tensor that does not lie in shared memory"):
            driver.handle_of(tensor.clone())


@pytest.mark.parametrize("in_flight", [1, K])
def test_a_task_whose_readers_do_not_let_go_says_so(make, in_flight):
    ends = make(in_flight=in_flight)
    ends.send(1)
    for number in range(2, in_flight + 3):
        ends.driver.emit(number)
    with pytest.raises(SegmentError, match=f"policy has not released message 1 of {DRIVER} in {SECONDS / 2} s"):
        ends.driver.emit(in_flight + 3)
    ends.actors["policy"].release()
    ends.driver.emit(in_flight + 3)


def test_an_actor_with_several_readers_of_a_message_opens_it_for_all_of_them(make):
    """Ray Direct Transport fetches once for the actor, whichever of its tasks reads."""
    tasks = [Task(name, (DRIVER,), LATE, actor="one") for name in ("left", "right")]
    ends = make(Flow("fork", "fork", LATE, tuple(tasks), ("left", "right")))
    one = ends.actors["one"]
    for number in range(1, 6):
        ends.driver.emit(number)
        assert int(one.view_for_all([DRIVER, number])["number"]) == number
    with pytest.raises(SegmentError, match="one was handed message 1 of nobody"):
        one.view_for_all(["nobody", 1])
