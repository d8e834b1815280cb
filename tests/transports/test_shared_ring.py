# SPDX-License-Identifier: Apache-2.0
"""Shared memory that readers map, with handles: the ring in one process and in two, and the endpoints that use it."""

import errno
import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
from pathlib import Path

import pytest
import torch
from in_process import COLOCATED, DEMO, RICH, LocalRingEndpoints, on_edge

from dataflow.errors import RunFailed
from dataflow.flows.catalogue import build_flow
from dataflow.flows.flow import DRIVER, Edge, Flow, Task
from dataflow.flows.message import Field, Message, flat_message
from dataflow.transports.shared_ring import Ring, View

READERS = ["reference", "reward"]
TIMEOUT = 0.05  # seconds that a sender waits for readers that do not release
BYTES = 4096
PROCESSES = multiprocessing.get_context("fork")  # a fresh Python would import torch for seconds
K = 4  # iterations in flight
LATE = Message((Field("empty", "float32", (0,)), Field("number", "int64", (1,))))
LATE_TENSOR = Flow(
    "late", "late", LATE, (Task("one", (DRIVER,), LATE), Task("two", ("one",), LATE)), ("two",)
)
FORK = Flow(
    "fork",
    "fork",
    LATE,
    tuple(Task(n, (DRIVER,), LATE, actor="one") for n in ("a", "b")),
    ("a", "b"),
)
SCATTER = build_flow("scatter-gather", {"message_bytes": 13, "actors": 3})
MODES = [  # message, flags, iterations between verifications
    ("fields", {}, 1), ("packed", {}, 20), ("packed", {"copy_out": True, "in_flight": K}, 11),
    ("fields", {"copy_in": True, "copy_out": True, "in_flight": K}, K), ("jagged", {"copy_in": True}, 20),
]  # fmt: skip


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix=f"test-ring-{os.getpid()}-") as path:
        yield Path(path)


@pytest.fixture
def make_endpoints(folder):
    return lambda flow=DEMO, **options: LocalRingEndpoints(
        flow, folder, timeout=2 * TIMEOUT, **options
    )


def make(folder, count=BYTES, keep=1, timeout=TIMEOUT):
    """Return a ring and the views of its readers, as endpoints make them with `keep` iterations in flight."""
    message = flat_message(count)
    ring = Ring(folder, "policy", message.packed_bytes, keep + 2, READERS, timeout)
    return ring, [
        View(folder, Edge("policy", reader, message), keep + 2, keep, READERS) for reader in READERS
    ]


def send(ring, number):
    """Write a message whose bytes all equal its number, and return its handle."""
    ring.acquire(number)
    ring.slots[number % len(ring.slots)][:] = number
    ring.publish(number)
    return [ring.sender, number]


def has(tensor, number):
    return bool((tensor.view(torch.uint8) == number).all())


@pytest.mark.parametrize(("keep", "count"), [(1, 13), (2, 4096), (4, 4097)])
@pytest.mark.parametrize("ahead", [1, 2])
def test_held_views_are_not_overwritten_and_do_not_block_the_sender(folder, keep, count, ahead):
    """The sender is ahead of its readers, as with several iterations in flight."""
    ring, views = make(folder, count, keep)
    held = [[] for _ in views]
    for number in range(1, 30):
        send(ring, number)
        opened = number - ahead + 1
        if opened < 1:
            continue
        for view, views_of_reader in zip(views, held, strict=True):
            views_of_reader.append((opened, view.open(["policy", opened])))
            assert (
                views_of_reader[-1][1].data_ptr() == view.slots[opened % (keep + 2)].ctypes.data
            )  # is no copy
            del views_of_reader[:-keep]
            assert all(has(tensor, number) for number, tensor in views_of_reader)


@pytest.mark.parametrize("keep", [1, 2, 4])
@pytest.mark.parametrize("slow", [0, 1])
def test_the_sender_waits_for_a_slow_reader_and_names_it(folder, keep, slow):
    ring, views = make(folder, keep=keep)
    held = {number: views[slow].open(send(ring, number)) for number in range(1, keep + 1)}
    for number in (keep + 1, keep + 2):
        views[1 - slow].open(send(ring, number))
    views[1 - slow].release()
    with pytest.raises(
        RunFailed, match=f"{READERS[slow]} did not release message 1 of policy in 0.05 s"
    ):
        send(ring, keep + 3)
    assert all(has(tensor, number) for number, tensor in held.items())
    views[slow].release()
    assert has(views[slow].open(send(ring, keep + 3)), keep + 3)


@pytest.mark.parametrize("handle", [["policy", 1], ["policy", 5], ["policy", 7], ["reward", 4]])
def test_a_handle_of_another_message_than_the_slot_holds_is_rejected(folder, handle):
    """The message was overwritten, is not yet written, or is another sender's."""
    ring, views = make(folder)
    for number in (1, 2, 3, 4):
        for view in views:
            view.open(send(ring, number))
    with pytest.raises(
        RunFailed, match=f"reference received the handle of message {handle[1]} of {handle[0]}, but"
    ):
        views[0].open(handle)


@pytest.mark.parametrize("where", [(os, "posix_fallocate"), (Path, "open")], ids=["bytes", "name"])
def test_full_shared_memory_is_an_error_before_the_first_message_and_leaves_no_file(
    monkeypatch, folder, where
):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    make(folder)
    file = (folder / "policy").stat()
    assert (
        file.st_blocks * 512 >= file.st_size > 3 * BYTES
    )  # otherwise a SIGBUS in the middle of an iteration
    (folder / "policy").unlink()
    monkeypatch.setattr(*where, fail)
    with pytest.raises(RunFailed, match=r"policy needs 4,096 MiB of shared memory.*--shm-size"):
        make(folder, 2**32 // 3)
    assert list(folder.iterdir()) == []


def test_a_tensor_is_written_if_it_fills_the_slot(folder):
    ring, (view, _) = make(folder)
    tensor = torch.arange(BYTES // 8)
    assert torch.equal(view.open(ring.write(tensor)), tensor)
    for other in (tensor[:1], torch.arange(BYTES)):
        with pytest.raises(
            RunFailed, match=f"a tensor of {other.nbytes} bytes does not fill a slot of {BYTES}"
        ):
            ring.write(other)


def test_a_reader_in_another_process_never_sees_a_torn_message_and_keeps_the_memory(folder):
    """The sender writes at full speed. Its slots remain after its end and after the removal of the name."""
    ring, views = make(folder, 2**18, timeout=60)
    sender = PROCESSES.Process(target=lambda: [send(ring, number) for number in range(1, 201)])
    sender.start()
    (folder / "policy").unlink()
    for number in range(1, 201):
        for view in views:
            while view.written[number % 3] < number:
                assert sender.exitcode in (None, 0)
                os.sched_yield()
            tensor = view.open(["policy", number])
            assert has(tensor, number) and has(tensor, number)
    sender.join()
    assert sender.exitcode == 0
    assert has(views[0].open(["policy", 200]), 200)


def test_a_reader_that_writes_into_its_view_dies_and_changes_nothing(folder):
    ring, views = make(folder)
    held = views[0].open(send(ring, 1))
    with pytest.raises(ValueError, match="read-only"):
        views[0].slots[1][0] = 5

    def write():
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        held[0] = 99

    reader = PROCESSES.Process(target=write)
    reader.start()
    reader.join()
    assert reader.exitcode == -signal.SIGSEGV
    assert has(held, 1)


@pytest.mark.parametrize(
    "flow", [DEMO, RICH, COLOCATED, LATE_TENSOR, FORK, SCATTER], ids=lambda flow: flow.name
)
@pytest.mark.parametrize(("message", "options", "group"), MODES, ids=str)
def test_iterations_by_handle_arrive_unchanged_as_views_or_copies(
    make_endpoints, flow, message, options, group
):
    endpoints = make_endpoints(flow, message=message, **options)
    for first in range(1, 3 * group + 1, group):
        for number in range(first, first + group):
            endpoints.run(number)
        assert endpoints.verify(first, number) == {}
        assert endpoints.views == dict.fromkeys(map(str, flow.edges), "copy_out" not in options)


@pytest.mark.parametrize(
    "handle", [["policy", 1], ["reference", 2]], ids=["old message", "another sender"]
)
def test_a_handle_of_another_message_that_is_there_is_found_by_the_verification(
    make_endpoints, handle
):
    endpoints = make_endpoints()
    endpoints.run(1)
    endpoints.verify(1)
    endpoints.run(2, on_edge("policy -> reward", lambda _: handle))
    wrong = endpoints.verify(2)
    assert list(wrong) == ["policy -> reward"] and wrong["policy -> reward"] > 20_000


@pytest.mark.parametrize(("handle", "error"), [
    (["nobody", 1], "policy received a handle of nobody"),
    (["reference", 1], "policy received a handle of reference"),
    (None, "policy expected a handle, got NoneType"),
    (torch.ones(8), "policy expected a handle, got Tensor"),
])  # fmt: skip
def test_what_is_no_handle_of_a_message_for_the_task_is_rejected(make_endpoints, handle, error):
    with pytest.raises(RunFailed, match=error):
        make_endpoints().run(1, on_edge("driver -> policy", lambda _: handle))
