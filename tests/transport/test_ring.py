"""Shared memory that readers map instead of copying: both ends in one process, then in another one."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from common.errors import SegmentError
from common.flow.message import Field, Message, flat
from common.payload.maps import SharedMappings
from common.transport.ring import Ring, View

ROOT = Path(__file__).resolve().parents[2]
READERS = ["reference", "reward"]
SOON = 0.05  # seconds that a producer waits for readers that will not release
COUNT = 4096
MESSAGE = flat(COUNT)


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="test-ring-") as made:
        yield Path(made)


def make(folder, message=MESSAGE, keep=1):
    """A ring and its views, as participants make them with `keep` trips under way."""
    count = message.packed_bytes
    ring = Ring(folder, "policy", count, keep + 2, READERS, SOON)
    return ring, [View(folder, "policy", message, count, keep + 2, keep, READERS, reader) for reader in READERS]


def produce(ring, number):
    """A message every byte of which says its number; its handle."""
    ring.acquire(number)
    ring.slots[number % len(ring.slots)][:] = number
    ring.publish(number)
    return [ring.sender, number]


def says(tensor, number):
    return bool((tensor.view(torch.uint8) == number).all())


@pytest.mark.parametrize("count", [1, 13, 4095, 4096, 4097])
def test_every_reader_sees_what_was_written_without_a_copy_and_messages_do_not_touch(folder, count):
    ring, views = make(folder, flat(count))
    maps = SharedMappings()
    for first in (1, 4, 7):
        handles = [produce(ring, number) for number in range(first, first + 3)]
        for view in views:
            for number, handle in enumerate(handles, first):
                tensor = view.open(handle)
                assert (tensor.nbytes, tensor.dtype) == (count, torch.uint8 if count % 8 else torch.int64)
                assert says(tensor, number) and maps.hold(tensor.data_ptr())
            view.release()


@pytest.mark.parametrize("keep", [1, 2, 4])
@pytest.mark.parametrize("ahead", [1, 2])
def test_views_of_as_many_messages_as_may_be_kept_are_never_overwritten_and_never_stall(folder, keep, ahead):
    """The producer goes on before its readers have opened the message, as it does with trips under way."""
    ring, views = make(folder, keep=keep)
    held = [[] for _ in views]
    for number in range(1, 30):
        handle = produce(ring, number)
        if number < ahead:
            continue
        for view, mine in zip(views, held, strict=True):
            opened = number - ahead + 1
            mine.append((opened, view.open([handle[0], opened])))
            del mine[:-keep]
            assert all(says(tensor, number) for number, tensor in mine)


@pytest.mark.parametrize("keep", [1, 2, 4])
@pytest.mark.parametrize("slow", [0, 1])
def test_a_reader_that_holds_up_the_producer_is_named_and_what_it_holds_stays(folder, keep, slow):
    ring, views = make(folder, keep=keep)
    held = {number: views[slow].open(produce(ring, number)) for number in range(1, keep + 1)}
    for number in (keep + 1, keep + 2):
        views[1 - slow].open(produce(ring, number))
    views[1 - slow].release()
    with pytest.raises(SegmentError, match=f"{READERS[slow]} has not released message 1 of policy in 0.05 s"):
        produce(ring, keep + 3)
    assert all(says(tensor, number) for number, tensor in held.items())
    views[slow].release()
    assert says(views[slow].open(produce(ring, keep + 3)), keep + 3)


@pytest.mark.parametrize("opened", [(), (1,), (2, 1, 2, 1, 2)], ids=["never", "once", "again and late"])
def test_a_message_is_released_neither_unseen_nor_while_it_may_be_held(folder, opened):
    ring, views = make(folder, keep=2)
    for view in views:
        view.release()
    for number in (1, 2, 3, 4):
        produce(ring, number)
    for view in views:
        for number in opened:
            assert says(view.open(["policy", number]), number)
    with pytest.raises(SegmentError, match="has not released message 1 of policy"):
        ring.acquire(5)


def test_release_lets_go_of_everything_that_was_opened(folder):
    ring, views = make(folder, keep=4)
    for number in (1, 2, 3, 4, 5, 3):
        for view in views:
            view.open(produce(ring, number) if number > ring.newest else ["policy", number])
    for view in views:
        view.release()
        view.open(produce(ring, 6))
    ring.acquire(5 + len(ring.slots))


def test_strings_are_those_of_the_message_that_is_opened(folder):
    message = Message((Field("number", "int64", (1,)), Field("words", "str", lengths=(3, 0, 1))))
    ring, views = make(folder, message)
    for number in (1, 2, 3):
        assert views[0].open(produce(ring, number))["words"] == [chr(number) * 3, "", chr(number)]


@pytest.mark.parametrize("handle", [["policy", 1], ["policy", 5], ["policy", 7], ["reward", 4]])
def test_a_handle_of_what_does_not_lie_there_is_refused(folder, handle):
    """It was overwritten, is not written yet, or is another's."""
    ring, views = make(folder)
    for number in (1, 2, 3, 4):
        for view in views:
            view.open(produce(ring, number))
    with pytest.raises(SegmentError, match=f"reference was handed message {handle[1]} of {handle[0]} and finds"):
        views[0].open(handle)


def test_a_name_that_is_taken_is_refused_and_the_first_one_goes_on(folder):
    ring, views = make(folder)
    with pytest.raises(SegmentError, match="policy exists already"):
        make(folder)
    assert says(views[0].open(produce(ring, 1)), 1)


@pytest.mark.parametrize("where", [(os, "posix_fallocate"), (Path, "open")], ids=["for bytes", "for a name"])
def test_full_shared_memory_is_refused_with_what_helps_and_leaves_no_file(monkeypatch, folder, where):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*where, full)
    with pytest.raises(SegmentError, match=r"policy finds no 4,096 MiB of shared memory: free some.*--shm-size"):
        make(folder, flat(2**32 // 3))
    assert list(folder.iterdir()) == []


def test_all_memory_is_taken_before_anything_is_written(folder):
    """A file with holes would be a SIGBUS in the middle of a trip."""
    make(folder)
    file = (folder / "policy").stat()
    assert file.st_blocks * 512 >= file.st_size > 3 * COUNT


def test_a_reader_before_its_producer_is_refused(folder):
    with pytest.raises(SegmentError, match="reward finds no segment of policy: it has not started, or has died"):
        View(folder, "policy", flat(8), 8, 3, 1, READERS, "reward")


# A process with one end of a ring in the folder; what it does with it stands below it.
PROGRAM = """
import resource, sys
from pathlib import Path
from common.flow.message import flat
from common.transport.ring import *
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
folder = Path(sys.argv[1])
"""
PRODUCER = """
ring = Ring(folder, "policy", 4096, 3, ["reference", "reward"], 0.05)
print("ready", flush=True)
for line in sys.stdin:
    number = int(line)
    try:
        ring.acquire(number)
        ring.slots[number % 3][:] = number
        ring.publish(number)
        print("published", number, flush=True)
    except SegmentError as error:
        print(error, flush=True)
"""
VANDAL = """
view = View(folder, "policy", flat(4096), 4096, 3, 1, ["reference", "reward"], "reward")
tensor = view.open(["policy", 1])
print("opened", int(tensor.view(torch.uint8)[0]), flush=True)
tensor[0] = 99
print("written", flush=True)
"""


@pytest.fixture
def process(folder):
    """process(source) -> a process that runs it, with this folder, as far as the test lets it."""
    with ExitStack() as stack:

        def start(source):
            command = [sys.executable, "-c", PROGRAM + source, str(folder)]
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            started = stack.enter_context(subprocess.Popen(command, cwd=ROOT, text=True, bufsize=1, **pipes))
            stack.callback(started.kill)
            return started

        yield start


def test_another_process_waits_for_a_slow_reader_goes_on_after_and_its_memory_outlives_it(process, folder):
    producer = process(PRODUCER)

    def tell(number):
        producer.stdin.write(f"{number}\n")
        return producer.stdout.readline().strip()

    assert producer.stdout.readline() == "ready\n"
    views = [View(folder, "policy", flat(COUNT), COUNT, 3, 1, READERS, reader) for reader in READERS]
    (folder / "policy").unlink()
    for number in (1, 2, 3):
        assert tell(number) == f"published {number}"
    held = [view.open(["policy", 1]) for view in views]
    views[0].release()
    assert "reward has not released message 1 of policy" in tell(4)
    assert says(held[1], 1)
    views[1].release()
    assert tell(4) == "published 4"
    producer.kill()
    producer.wait()
    assert says(views[1].open(["policy", 4]), 4)


def test_a_reader_that_writes_into_its_view_dies_and_changes_nothing(process, folder):
    ring, views = make(folder)
    held = views[0].open(produce(ring, 1))
    with pytest.raises(ValueError, match="read-only"):
        views[0].slots[1][0] = 5
    vandal = process(VANDAL)
    stdout, stderr = vandal.communicate(timeout=60)
    assert (stdout, vandal.returncode) == ("opened 1\n", -signal.SIGSEGV), stderr
    assert says(held, 1)
