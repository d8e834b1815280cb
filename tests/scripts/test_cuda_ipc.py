# SPDX-License-Identifier: Apache-2.0
"""The protocol of cuda-ipc with a GPU on CPUs, in threads and in processes, and its calls of the CUDA driver."""

import ctypes
import gc
import multiprocessing
import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fake_gpu import ALLOCATIONS, OFFSET, FakeDevice, place
from ray.exceptions import RayChannelError

from common import SuiteError, cuda_device
from common.cuda_device import HANDLE_BYTES, CudaDevice, Exported, IpcHandle
from common.cuda_ipc import CudaIpcCommunicator, Member, SharedMailboxes

NAMES = ("policy", "reference", "reward")
POLICY, REFERENCE, REWARD = range(3)
BYTES = 2**16
PAUSE = 0.02  # seconds; long against all that a fake GPU does
PROCESSES = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def free_memory():
    yield
    for allocation in ALLOCATIONS:
        os.close(allocation.file)
    ALLOCATIONS.clear()


@pytest.fixture
def pool():
    """A pool of threads in which the other actors run."""
    with ThreadPoolExecutor(3) as threads:
        yield threads


def make_members(*devices, timeout=10.0):
    """Return an actor's side for each name, with these devices or new ones."""
    mailboxes = SharedMailboxes(len(NAMES))
    devices = devices or [FakeDevice() for _ in NAMES]
    return [Member(mailboxes, rank, NAMES, device, timeout) for rank, device in enumerate(devices)]


def full(number, nbytes=BYTES):
    """Return a tensor on the fake GPU whose bytes all equal this number."""
    return place(torch.full((nbytes,), number, dtype=torch.uint8))


def receive(member, sender, nbytes=BYTES):
    return member.receive(sender, lambda: torch.zeros(nbytes, dtype=torch.uint8))


def has(tensor, number):
    return bool((tensor == number).all())


def send_and_overwrite(member, reader, count):
    """Send as many messages from one tensor. Each is written as soon as the one before has been sent."""
    tensor = full(0)
    for number in range(1, count + 1):
        tensor.fill_(number)
        member.send(tensor, reader)
    tensor.fill_(255)


def test_no_message_is_torn_although_the_sender_writes_at_once(pool):
    slow = FakeDevice(half_copied=lambda: time.sleep(PAUSE))
    policy, reference, _ = make_members(FakeDevice(), slow, FakeDevice())
    sending = pool.submit(send_and_overwrite, policy, REFERENCE, 5)
    received = [receive(reference, POLICY) for _ in range(5)]
    sending.result()
    assert all(has(tensor, number) for number, tensor in enumerate(received, start=1))


@pytest.mark.parametrize("part", ["the sender's wait", "the reader's wait"])
def test_without_a_wait_a_message_is_torn(pool, monkeypatch, part):
    """Otherwise, the test above could not fail. The sender writes exactly in the middle of the reader's copy."""
    is_half_copied = threading.Event()
    is_overwritten = threading.Event()

    def stop_in_the_middle():
        is_half_copied.set()
        is_overwritten.wait(10)

    slow = FakeDevice(half_copied=stop_in_the_middle)
    policy, reference, _ = make_members(FakeDevice(), slow, FakeDevice())
    if part == "the sender's wait":
        monkeypatch.setattr(policy, "_wait", lambda *_: is_half_copied.wait(10))
    else:
        monkeypatch.setattr(slow, "synchronise", lambda: is_half_copied.wait(10))
    sending = pool.submit(send_and_overwrite, policy, REFERENCE, 1)
    sending.add_done_callback(lambda _: is_overwritten.set())
    received = receive(reference, POLICY)
    sending.result()
    FakeDevice.synchronise(slow)
    assert not has(received, 1)


def test_a_reader_in_another_process_gets_every_byte_of_every_message():
    count = 100
    tensor = full(0, BYTES)
    mailboxes = SharedMailboxes(len(NAMES))
    results = PROCESSES.SimpleQueue()

    def read():
        torch.set_num_threads(1)  # a forked process has lost the others
        member = Member(mailboxes, REFERENCE, NAMES, FakeDevice(), 30.0)
        received = [receive(member, POLICY) for _ in range(count)]
        is_right = [has(tensor, number % 251) for number, tensor in enumerate(received)]
        results.put((all(is_right), len(member.device.opened)))

    reader = PROCESSES.Process(target=read)
    reader.start()
    policy = Member(mailboxes, POLICY, NAMES, FakeDevice(), 30.0)
    for number in range(count):
        tensor.fill_(number % 251)
        policy.send(tensor, REFERENCE)
    tensor.fill_(255)
    reader.join(30)
    assert reader.exitcode == 0
    assert results.get() == (True, 1)  # its memory was opened once
    assert mailboxes.mailbox(POLICY, REFERENCE).copied_bytes == count * BYTES


def test_the_copy_waits_for_the_work_on_the_senders_stream(pool):
    order = []
    reading = FakeDevice(begin_copy=lambda: order.append("copy"))
    policy, reference, _ = make_members(FakeDevice(), reading, FakeDevice())
    tensor = full(0)

    def write_late():
        time.sleep(10 * PAUSE)
        tensor.fill_(7)
        order.append("write")

    policy.device.put(write_late)
    sending = pool.submit(policy.send, tensor, REFERENCE)
    assert has(receive(reference, POLICY), 7)
    sending.result()
    assert order == ["write", "copy"]


def test_several_readers_get_their_own_copies_and_senders_do_not_mix(pool):
    policy, reference, reward = make_members()

    def send_to_both(number):
        tensor = full(number)
        policy.send(tensor, REFERENCE)
        policy.send(tensor, REWARD)
        tensor.fill_(255)

    def pass_on():
        reference.send(place(receive(reference, POLICY) + 100), REWARD)

    for number in (1, 2):
        calls = [pool.submit(send_to_both, number), pool.submit(pass_on)]
        of_policy = receive(reward, POLICY)
        of_reference = receive(reward, REFERENCE)
        for call in calls:
            call.result()
        assert has(of_policy, number) and has(of_reference, 100 + number)


@pytest.mark.parametrize("tensor", [
    torch.arange(6.0).reshape(2, 3), torch.tensor(3), torch.ones(5, dtype=torch.bool), torch.ones(0, 4),
    torch.ones(3, dtype=torch.bfloat16), torch.ones(13, dtype=torch.uint8),
], ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}")  # fmt: skip
def test_tensors_of_each_shape_and_dtype_arrive(pool, tensor):
    policy, reference, _ = make_members()
    sending = pool.submit(policy.send, place(tensor), REFERENCE)
    received = reference.receive(POLICY, lambda: torch.zeros_like(tensor))
    sending.result()
    assert torch.equal(received, tensor)


def test_what_cannot_be_sent_or_received_is_one_line(pool):
    policy, reference, _ = make_members()
    with pytest.raises(SuiteError, match=r"contiguous tensors only: call tensor.contiguous\(\)"):
        policy.send(torch.ones(4, 4).T[1:], REFERENCE)
    sending = pool.submit(policy.send, full(1), REFERENCE)
    with pytest.raises(SuiteError, match=f"expected 8 bytes of policy, got {BYTES}"):
        receive(reference, POLICY, 8)
    reference.close()
    with pytest.raises(RayChannelError):
        sending.result()


def test_a_wait_ends_with_the_name_of_the_actor_that_is_late():
    policy, reference, _ = make_members(timeout=0.05)
    with pytest.raises(SuiteError, match=r"reference did not copy a message in 0.05 s"):
        policy.send(full(1), REFERENCE)
    # Now the sender may write into its tensor, so the message must not be used.
    with pytest.raises(RayChannelError):
        receive(reference, POLICY)
    with pytest.raises(RayChannelError):
        policy.send(full(1), REWARD)
    _, reference, _ = make_members(timeout=0.05)
    with pytest.raises(SuiteError, match=r"policy did not send a message in 0.05 s"):
        receive(reference, POLICY)


def test_a_copy_that_ends_after_the_senders_timeout_is_not_delivered(pool):
    is_late = threading.Event()
    slow = FakeDevice(half_copied=is_late.wait)
    policy, reference, _ = make_members(FakeDevice(), slow, FakeDevice(), timeout=0.05)
    receiving = pool.submit(receive, reference, POLICY)
    with pytest.raises(SuiteError, match="reference did not copy"):
        policy.send(full(1), REFERENCE)
    is_late.set()
    with pytest.raises(RayChannelError):
        receiving.result()


def test_an_actor_that_leaves_ends_the_waits_of_all_others(pool):
    policy, reference, reward = make_members()
    sending = pool.submit(policy.send, full(1), REFERENCE)
    receiving = pool.submit(receive, reference, REWARD)
    time.sleep(PAUSE)
    assert not sending.done() and not receiving.done()
    reward.close()
    for waiting in (sending, receiving):
        with pytest.raises(RayChannelError, match="an actor has left"):
            waiting.result(timeout=5)


def test_memory_is_opened_once_again_after_it_was_freed_and_closed_at_the_end(pool, monkeypatch):
    policy, reference, _ = make_members()
    tensor = full(1)
    device = reference.device

    def pass_message():
        sending = pool.submit(policy.send, tensor, REFERENCE)
        receive(reference, POLICY)
        sending.result()

    pass_message()
    pass_message()
    assert (len(device.opened), len(device.closed)) == (1, 0)
    export = policy.device.export
    # Another allocation at the same address.
    monkeypatch.setattr(policy.device, "export", lambda t: export(t)._replace(allocation=99))
    pass_message()
    assert (len(device.opened), len(device.closed), len(device.mapped)) == (2, 1, 1)
    reference.close()
    reference.close()
    assert (len(device.closed), device.mapped) == (2, {})


def test_the_shared_memory_has_no_name_and_ends_with_those_that_use_it(pool):
    def open_files():
        files = [str(path.resolve()) for path in Path("/proc/self/fd").iterdir()]
        return [file for file in files if "cuda-ipc" in file]

    gc.collect()
    before = open_files()
    members = make_members()
    sending = pool.submit(members[POLICY].send, full(1), REFERENCE)
    receive(members[REFERENCE], POLICY)
    sending.result()
    assert len(open_files()) > len(before)
    assert {*open_files()} == {"/memfd:cuda-ipc (deleted)"}
    for member in members:
        member.close()
    del members, member, sending
    gc.collect()
    assert len(open_files()) <= len(before)


def test_a_communicator_reaches_an_actor_without_its_state_and_says_if_its_memory_cannot(pool):
    communicator = CudaIpcCommunicator(dict.fromkeys(NAMES, "handle"), 5.0, FakeDevice)
    copies = [pickle.loads(pickle.dumps(communicator)) for _ in NAMES]
    for rank, copy in enumerate(copies):
        copy.initialize(rank)
    policy, reference, _ = copies
    assert pickle.loads(pickle.dumps(policy)).member is None
    sending = pool.submit(policy.send, full(3), REFERENCE)
    received = reference.recv(
        (BYTES,), torch.uint8, POLICY, lambda shape, dtype: torch.zeros(shape, dtype=dtype)
    )
    sending.result()
    assert has(received, 3)
    # The driver reads what was copied.
    communicator.require_copied({("policy", "reference"): BYTES, ("policy", "reward"): 0})
    with pytest.raises(SuiteError, match="reward copied 0 bytes from policy by CUDA IPC, not 8: "):
        communicator.require_copied({("policy", "reward"): 8})
    lost = pickle.loads(pickle.dumps(communicator))
    lost.mailboxes.path = "/proc/1/fd/999999"
    with pytest.raises(
        SuiteError, match=r"/proc/1/fd/999999 cannot be opened .*: start all actors on"
    ):
        lost.initialize(POLICY)


class FakeDriver:
    """The functions of libcuda.so.1 that CudaDevice calls, with the types of cuda.h."""

    def __init__(self, tensor, is_shareable=1):
        self.calls = []
        base = tensor.data_ptr() - OFFSET
        values = {
            cuda_device.BUFFER_ID: 42,
            cuda_device.IS_IPC_CAPABLE: is_shareable,
            cuda_device.RANGE_START: base,
        }

        def get_attribute(data, attribute, address):
            assert address == tensor.data_ptr()
            ctypes.cast(data, POINTER(c_uint64))[0] = values[attribute]
            return 0

        def get_handle(handle, address):
            self.calls.append(("get", address - base))
            handle[0] = IpcHandle.from_buffer_copy(bytes(range(HANDLE_BYTES)))
            return 0

        def open_handle(address, handle, flags):
            self.calls.append(("open", bytes(handle.reserved), flags))
            address[0] = 2**40
            return 0 if bytes(handle.reserved)[0] == 0 else 201

        def copy(target, source, nbytes, stream):
            self.calls.append(("copy", target, source, nbytes, stream))
            return 0

        def close_handle(address):
            self.calls.append(("close", address))
            return 0

        def get_name(code, name):
            name[0] = b"CUDA_ERROR_INVALID_CONTEXT"
            return 0

        function, address = ctypes.CFUNCTYPE, c_uint64
        self.cuPointerGetAttribute = function(c_int, c_void_p, c_int, address)(get_attribute)
        self.cuIpcGetMemHandle = function(c_int, POINTER(IpcHandle), address)(get_handle)
        self.cuIpcOpenMemHandle_v2 = function(c_int, POINTER(address), IpcHandle, c_uint)(
            open_handle
        )
        self.cuMemcpyDtoDAsync_v2 = function(c_int, address, address, c_size_t, c_void_p)(copy)
        self.cuIpcCloseMemHandle = function(c_int, address)(close_handle)
        self.cuGetErrorName = function(c_int, c_int, POINTER(c_char_p))(get_name)


@pytest.fixture
def cuda(monkeypatch):
    """cuda(tensor) -> a CudaDevice whose driver is a FakeDriver; torch.cuda is replaced too."""
    events = []

    class Event:
        def __init__(self, interprocess=False):
            assert interprocess
            events.append("made")

        def record(self):
            events.append("recorded")

        def ipc_handle(self):
            return bytes(HANDLE_BYTES)

        @classmethod
        def from_ipc_handle(cls, device, handle):
            events.append(f"opened on {device}")
            return SimpleNamespace(wait=lambda: events.append("waited"))

    stream = SimpleNamespace(cuda_stream=5, synchronize=lambda: events.append("synchronised"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    def make(tensor, **arguments):
        monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(tensor, **arguments))
        device = CudaDevice()
        return device, device.driver.calls, events

    return make


def test_the_driver_gets_the_arguments_of_its_functions(cuda):
    tensor = full(1)
    device, calls, events = cuda(tensor)
    handle = bytes(range(HANDLE_BYTES))
    assert device.record() == bytes(HANDLE_BYTES)
    assert device.export(tensor) == Exported(handle, tensor.data_ptr() - OFFSET, 42, OFFSET)
    address = device.open(handle)
    device.copy(address + OFFSET, tensor)
    device.synchronise()
    device.close(address)
    assert calls == [
        ("get", 0),
        ("open", handle, 1),
        ("copy", tensor.data_ptr(), 2**40 + OFFSET, BYTES, 5),
        ("close", 2**40),
    ]
    device.wait(bytes(HANDLE_BYTES))
    device.wait(bytes(HANDLE_BYTES))
    assert events == ["made", "recorded", "synchronised", "opened on cuda:0", "waited", "waited"]


def test_an_error_of_the_driver_has_its_name_and_memory_that_cannot_be_shared_is_one_line(cuda):
    tensor = full(1)
    device, _, _ = cuda(tensor)
    # Scripts and suite raise it: --transport is a flag of the scripts only.
    with pytest.raises(
        SuiteError,
        match=r"cuIpcOpenMemHandle_v2 failed with CUDA_ERROR_INVALID_CONTEXT: use shm in place of cuda-ipc$",
    ):
        device.open(bytes([9] * HANDLE_BYTES))
    device, _, _ = cuda(tensor, is_shareable=0)
    with pytest.raises(SuiteError, match=r"leave backend and expandable_segments out of PYTORCH_"):
        device.export(tensor)
