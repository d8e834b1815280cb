"""Shared memory that readers map instead of copying: in one process, then across processes."""

import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from common.runtime.processes import ProcessRoles
from common.runtime.ray_actors import RayRoles
from conftest import KILOBYTES, ROOT, arguments

from common.flow.demo_sizes import Sizes
from common.flow.flow import DRIVER, chain, online_dpo, scatter_gather
from common.payload.pattern import POOL_SIZE, lies_in_shared_memory
from common.transport import ring as mapped
from common.transport.ring import Ring, SegmentError, View, segments, unlink
from common.transport.ring_participant import MappedParticipant, MappedRole

BYTES = 4096
READERS = ["reference", "reward"]
SOON = 0.05  # seconds that a producer waits for readers that will not release


@pytest.fixture
def folder():
    with segments() as made:
        yield made


def produce(ring, sequence):
    """Message `sequence`, every word of which says its number; its handle."""
    ring.acquire(sequence)
    ring.slots[sequence % POOL_SIZE][:] = sequence
    ring.publish(sequence)
    return [ring.sender, sequence]


@pytest.fixture
def ring(folder):
    return Ring(folder, "policy", BYTES, READERS, SOON)


@pytest.fixture
def views(ring, folder):
    return [View(folder, "policy", BYTES, READERS, reader) for reader in READERS]


def says(tensor, sequence):
    return bool((tensor == sequence).all())


def test_every_reader_sees_what_was_written_without_a_copy(ring, views):
    for sequence in range(1, 3 * POOL_SIZE):
        handle = produce(ring, sequence)
        for view in views:
            tensor = view.open(handle)
            assert (tensor.dtype, tensor.shape) == (torch.int64, (BYTES // 8,))
            assert says(tensor, sequence)
            assert lies_in_shared_memory(tensor.data_ptr())
            view.release()


@pytest.mark.parametrize("count", [1, 13, 4095, 4097])
def test_messages_of_odd_bytes_do_not_touch_each_other(folder, count):
    ring = Ring(folder, "policy", count, ["reward"], SOON)
    view = View(folder, "policy", count, ["reward"], "reward")
    handles = [produce(ring, sequence) for sequence in range(1, POOL_SIZE + 1)]
    for sequence, handle in enumerate(handles, 1):
        tensor = view.open(handle)
        assert (tensor.dtype, tensor.nbytes) == (torch.uint8, count)
        assert says(tensor, sequence)


@pytest.mark.parametrize("slow", [0, 1])
def test_a_slow_reader_is_named_and_keeps_what_it_holds(ring, views, slow):
    held = [view.open(produce(ring, 1)) for view in views]
    produce(ring, 2)
    produce(ring, 3)
    views[1 - slow].open(["policy", 3])
    views[1 - slow].release()
    with pytest.raises(SegmentError, match=f"{READERS[slow]} has not released message 1 of policy"):
        produce(ring, 4)
    assert says(held[slow], 1)


def test_a_producer_goes_on_when_the_last_reader_has_released(ring, views):
    for view in views:
        view.open(produce(ring, 1))
    produce(ring, 2)
    produce(ring, 3)
    views[0].release()
    with pytest.raises(SegmentError, match="reward"):
        produce(ring, 4)
    views[1].release()
    for view in views:
        assert says(view.open(produce(ring, 4)), 4)
    with pytest.raises(SegmentError, match="message 2"):  # of which nobody said that it is done with it
        produce(ring, 5)


def test_a_reader_that_opens_a_message_has_released_the_one_before(ring, views):
    for sequence in range(1, POOL_SIZE + 1):
        produce(ring, sequence)
    for view in views:
        view.open(["policy", 1])
    with pytest.raises(SegmentError, match="message 1"):
        produce(ring, POOL_SIZE + 1)
    for view in views:
        held = view.open(["policy", 2])
    produce(ring, POOL_SIZE + 1)
    assert says(held, 2)
    with pytest.raises(SegmentError, match="message 2"):
        produce(ring, POOL_SIZE + 2)


def test_a_message_that_is_opened_twice_is_not_released_by_that(ring, views):
    handles = [produce(ring, sequence) for sequence in range(1, POOL_SIZE + 1)]
    for view in views:
        for handle in (handles[0], handles[0]):
            view.open(handle)
    with pytest.raises(SegmentError, match="has not released message 1 of policy"):
        ring.acquire(POOL_SIZE + 1)


def test_what_a_reader_has_not_opened_is_not_released(ring, views):
    produce(ring, 1)
    for view in views:
        view.release()
    produce(ring, 2)
    produce(ring, 3)
    with pytest.raises(SegmentError, match="message 1"):
        produce(ring, 4)


def test_a_handle_whose_message_was_overwritten_is_refused(ring, views):
    old = produce(ring, 1)
    for sequence in (2, 3):
        produce(ring, sequence)
    for view in views:
        view.open(old)
        view.release()
    produce(ring, 1 + POOL_SIZE)
    with pytest.raises(SegmentError, match="reference was handed message 1 of policy and finds 4 of policy"):
        views[0].open(old)


@pytest.mark.parametrize("handle", [["policy", 2], ["policy", 1 + POOL_SIZE], ["reward", 1]])
def test_a_handle_of_a_message_that_was_never_written_is_refused(ring, views, handle):
    produce(ring, 1)
    with pytest.raises(SegmentError, match="reference was handed message"):
        views[0].open(handle)


def test_a_name_that_is_taken_is_refused_and_the_first_one_goes_on(ring, views, folder):
    with pytest.raises(SegmentError, match="policy exists already"):
        Ring(folder, "policy", BYTES, READERS, SOON)
    assert says(views[0].open(produce(ring, 1)), 1)


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_full_shared_memory_is_refused_and_leaves_no_file(monkeypatch, folder):
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SegmentError, match=r"policy finds no 4,096 MiB of shared memory: free some.*--shm-size"):
        Ring(folder, "policy", 2**32 // POOL_SIZE, READERS, SOON)
    assert list(folder.iterdir()) == []


def test_shared_memory_without_room_for_a_name_is_refused(monkeypatch, folder):
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(SegmentError, match="shared memory: free some"):
        Ring(folder, "policy", BYTES, READERS, SOON)


def test_shared_memory_without_room_for_a_folder_is_refused(monkeypatch):
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(SegmentError, match=r"No space left on device.*free some of it"), segments():
        pass


def test_all_memory_is_taken_before_anything_is_written(folder):
    """A file with holes would be a SIGBUS in the middle of a trip."""
    Ring(folder, "policy", BYTES, READERS, SOON)
    file = (folder / "policy").stat()
    assert file.st_blocks * 512 >= file.st_size > POOL_SIZE * BYTES


def test_a_reader_before_its_producer_is_refused(folder):
    with pytest.raises(SegmentError, match="reward finds no segment of policy: it has not started, or has died"):
        View(folder, "policy", BYTES, READERS, "reward")


@pytest.mark.parametrize("exception", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_the_folder_goes_whatever_happens(exception):
    try:
        with segments() as folder:
            Ring(folder, "policy", BYTES, READERS, SOON)
            assert folder.parent == mapped.SHARED_MEMORY
            if exception:
                raise exception
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        assert type(error) is exception
    assert not folder.exists()


def test_two_cases_have_folders_of_their_own():
    with segments() as one, segments() as other:
        assert one != other
        Ring(one, "policy", BYTES, READERS, SOON)
        Ring(other, "policy", BYTES, READERS, SOON)


def test_memory_stays_readable_when_the_names_are_gone(ring, views, folder):
    handle = produce(ring, 1)
    unlink(folder)
    assert not folder.exists()
    assert says(views[0].open(handle), 1)
    assert says(views[1].open(produce(ring, 2)), 2)


def permissions(address):
    """Of the mapping that the address lies in, as the kernel has them: r--s, say."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags, *_ = line.split()
        start, end = (int(bound, 16) for bound in span.split("-"))
        if start <= address < end:
            return flags
    raise AssertionError("no mapping there")


def test_a_view_is_for_reading_only(ring, views):
    tensor = views[0].open(produce(ring, 1))
    assert permissions(tensor.data_ptr()) == "r--s"
    assert permissions(ring.slots[1].ctypes.data) == "rw-s"
    assert not views[0].slots[1].flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        views[0].slots[1][0] = 5


# A process with one end of a ring in {folder}; what it does with it stands below it.
PROGRAM = """
import sys
from pathlib import Path
from common.transport.ring import *
folder = Path(sys.argv[1])
"""
PRODUCER = """
ring = Ring(folder, "policy", 4096, ["reference", "reward"], 0.05)
print("ready", flush=True)
for line in sys.stdin:
    sequence = int(line)
    try:
        ring.acquire(sequence)
        ring.slots[sequence % 3][:] = sequence
        ring.publish(sequence)
        print("published", sequence, flush=True)
    except SegmentError as error:
        print(error, flush=True)
"""
VANDAL = """
view = View(folder, "policy", 4096, ["reference", "reward"], "reward")
tensor = view.open(["policy", 1])
print("opened", int(tensor[0]), flush=True)
tensor[0] = 99
print("written", flush=True)
"""


def no_core_file():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.fixture
def process(folder):
    """process(source) -> a process that runs it, with this folder, as far as the test lets it."""
    started = []

    def start(source):
        command = [sys.executable, "-c", PROGRAM + source, str(folder)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        started.append(subprocess.Popen(command, cwd=ROOT, text=True, bufsize=1, preexec_fn=no_core_file, **pipes))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()


def tell(producer, sequence):
    """Let the producer send a message; what it says."""
    producer.stdin.write(f"{sequence}\n")
    return producer.stdout.readline().strip()


@pytest.fixture
def producer(process):
    started = process(PRODUCER)
    assert started.stdout.readline() == "ready\n"
    return started


def test_another_process_waits_for_a_slow_reader_names_it_and_goes_on_after(producer, folder):
    views = [View(folder, "policy", BYTES, READERS, reader) for reader in READERS]
    for sequence in (1, 2, 3):
        assert tell(producer, sequence) == f"published {sequence}"
    held = [view.open(["policy", 1]) for view in views]
    views[0].release()
    assert "reward has not released message 1 of policy" in tell(producer, 4)
    assert says(held[1], 1)
    views[1].release()
    assert tell(producer, 4) == "published 4"
    assert says(views[1].open(["policy", 4]), 4)


def test_memory_outlives_its_name_and_its_producer(producer, folder):
    view = View(folder, "policy", BYTES, READERS, "reward")
    assert tell(producer, 1) == "published 1"
    unlink(folder)
    producer.kill()
    producer.wait()
    assert says(view.open(["policy", 1]), 1)
    with pytest.raises(SegmentError, match="it has not started, or has died"):
        View(folder, "policy", BYTES, READERS, "reference")


def test_a_reader_that_writes_into_its_view_dies_and_changes_nothing(ring, views, process):
    held = views[0].open(produce(ring, 1))
    vandal = process(VANDAL)
    stdout, stderr = vandal.communicate(timeout=60)
    assert (stdout, vandal.returncode) == ("opened 1\n", -signal.SIGSEGV), stderr
    assert says(held, 1)


class Ends:
    """The driver and all roles, with handles that go from call to call."""

    def __init__(self, flow, folder, *flags):
        given = arguments("--timeout", str(2 * SOON), *flags)
        self.flow = flow
        self.driver = MappedParticipant(flow, DRIVER, given, folder)
        self.roles = {role.name: MappedRole(flow, role.name, given, folder) for role in flow.roles}
        self.everybody = {DRIVER: self.driver, **self.roles}
        for participant in self.everybody.values():
            participant.expect({name: other.own_digests() for name, other in self.everybody.items()})
            participant.open_inputs()

    def send(self, trip, change=lambda edge, handle: handle):
        """One trip on which every reader gets change(edge, handle)."""
        handles = {DRIVER: self.driver.handle_of(self.driver.emit(trip))}

        def arriving(reader):
            return [change(str(edge), handles[edge.source]) for edge in self.flow.edges_to(reader)]

        for role in self.flow.roles:
            handles[role.name] = self.roles[role.name].forward_step(*arriving(role.name))
        self.driver.receive([self.driver.view(handle) for handle in arriving(DRIVER)])

    def verify(self, trip, trips=1):
        """Wrong bytes by reader, where there are any, and which edges were mapped."""
        found = {name: one.verify(trip, trips) for name, one in self.everybody.items()}
        wrong = {name: wrong for name, (wrong, _) in found.items() if wrong}
        return wrong, {edge: seen for _, mapped_edges in found.values() for edge, seen in mapped_edges.items()}


FLOW = online_dpo(Sizes(batch_size=4, prompt_seq_len=256))
EDGES = {str(edge): edge.bytes for edge in FLOW.edges}


@pytest.mark.parametrize(
    "flow", [FLOW, chain(13, 2), scatter_gather(1, 3), scatter_gather(4096, 2)], ids=lambda flow: flow.name
)
def test_trips_by_handle_arrive_mapped_and_right(flow, folder):
    ends = Ends(flow, folder)
    for trip in range(1, 3 * POOL_SIZE):
        ends.send(trip)
        assert ends.verify(trip) == ({}, {str(edge): True for edge in flow.edges})


def test_copy_out_gives_readers_of_handles_bytes_of_their_own(folder):
    ends = Ends(FLOW, folder, "--copy-out")
    for trip in range(1, 2 * POOL_SIZE):
        ends.send(trip)
        assert ends.verify(trip) == ({}, dict.fromkeys(EDGES, False))


def test_a_byte_that_changes_in_shared_memory_is_wrong_for_every_reader(folder):
    ends = Ends(FLOW, folder)
    ends.send(1)
    ends.roles["policy"].ring.slots[1].view(np.uint8)[-1] ^= 1
    assert ends.verify(1)[0] == {"reference": 1, "reward": 1}


def test_handles_that_are_exchanged_are_wrong(folder):
    ends = Ends(FLOW, folder)
    other = {"policy -> reward": ["reference", 1], "reference -> reward": ["policy", 1]}
    ends.send(1, lambda edge, handle: other.get(edge, handle))
    assert ends.verify(1)[0] == {"reward": EDGES["policy -> reward"] + EDGES["reference -> reward"]}


def test_the_handle_of_another_trip_is_refused_by_its_reader(folder):
    ends = Ends(FLOW, folder)
    ends.send(1)
    ends.verify(1)
    with pytest.raises(SegmentError, match="reward was handed message 5 of policy"):
        ends.send(2, lambda edge, handle: ["policy", 5] if edge == "policy -> reward" else handle)


def test_a_handle_that_comes_a_trip_late_is_wrong(folder):
    """Its message still lies there, so only the check can tell."""
    ends = Ends(FLOW, folder)
    ends.send(1)
    ends.verify(1)
    ends.send(2, lambda edge, handle: ["policy", 1] if edge == "policy -> reward" else handle)
    assert ends.verify(2)[0]["reward"] > 0.9 * EDGES["policy -> reward"]


@pytest.mark.parametrize("handle", [["nobody", 1], ["reference", 1]], ids=["of nobody", "of one that it does not read"])
def test_the_handle_of_a_foreigner_is_refused_by_its_reader(folder, handle):
    ends = Ends(FLOW, folder)
    with pytest.raises(SegmentError, match=f"policy was handed .*{handle[0]}"):
        ends.send(1, lambda edge, given: handle if edge == "driver -> policy" else given)


@pytest.mark.parametrize("handle", [None, ValueError("lost"), torch.ones(8), "policy"])
def test_anything_but_a_handle_is_refused(folder, handle):
    ends = Ends(FLOW, folder)
    with pytest.raises(TypeError, match=f"policy expected a handle, got {type(handle).__name__}"):
        ends.roles["policy"].forward_step(handle)


def test_a_tensor_that_does_not_lie_in_the_ring_has_no_handle(folder):
    """Readers would map what lay there before."""
    policy = Ends(FLOW, folder).roles["policy"]
    policy.receive([torch.ones(1024, dtype=torch.int64)])
    payload = policy.emit(1)
    assert policy.handle_of(payload) == ["policy", 1]
    with pytest.raises(SegmentError, match="policy was to send a tensor that does not lie in shared memory"):
        policy.handle_of(payload.clone())


def test_a_role_whose_readers_do_not_let_go_says_so(folder):
    ends = Ends(FLOW, folder)
    ends.send(1)
    for trip in range(2, POOL_SIZE + 1):
        ends.driver.emit(trip)
    with pytest.raises(SegmentError, match=f"policy has not released message 1 of {DRIVER}"):
        ends.driver.emit(POOL_SIZE + 1)


def test_episodes_longer_than_the_ring_are_right(folder):
    """A reader that is handed the next message is done with the one before."""
    ends = Ends(FLOW, folder)
    trips = 2 * POOL_SIZE + 1
    for episode in range(3):
        for trip in range(episode * trips + 1, (episode + 1) * trips + 1):
            ends.send(trip)
        assert ends.verify((episode + 1) * trips, trips) == ({}, dict.fromkeys(EDGES, True))


def test_a_role_that_was_checked_has_let_go(folder):
    ends = Ends(FLOW, folder)
    for trip in range(1, 2 * POOL_SIZE):
        ends.send(trip)
        ends.verify(trip)
    for role in ends.roles.values():
        assert role.inputs == ()


def test_what_goes_wrong_with_shared_memory_in_the_driver_is_explained_too():
    """And no traceback: it is among the errors that a case names."""
    assert isinstance(SegmentError("full"), RayRoles(0).errors)
    assert isinstance(SegmentError("full"), ProcessRoles.errors)


RAY = "ray_cg_simulate_chat_learn_data_flow"
# A role that finds shared memory full: what it says must reach the user, for he can do something about it.
FULL = """
import errno, os


def wrap_role(role_class):
    class Unlucky(role_class):
        def __init__(self, flow, name, *rest):
            if name == "reference":
                def full(*_):
                    raise OSError(errno.ENOSPC, "No space left on device")
                os.posix_fallocate = full
            super().__init__(flow, name, *rest)

    return Unlucky
"""


def test_a_role_that_finds_shared_memory_full_says_what_to_do(run_script, write_script):
    finished = run_script(write_script(RAY, FULL), "--transport", "mapped", *KILOBYTES)
    assert finished.code == 1
    assert "Traceback" not in finished.stderr
    assert finished.case["reason"].startswith("before the first trip: reference ")
    assert "finds no 0 MiB of shared memory: free some of /dev/shm" in finished.case["reason"]
