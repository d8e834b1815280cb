# SPDX-License-Identifier: Apache-2.0
"""A GPU on CPUs for the tests of cuda-ipc: memory that other processes can map, a stream of its own, and events.

As on a GPU, what is put on the stream runs later, and a handle is not usable in another way than through `open`.
"""

import ctypes
import mmap
import os
import queue
import threading
import time
from ctypes import c_int64

import torch

from common.cuda_device import HANDLE_BYTES, Exported

OFFSET = 64  # bytes of an allocation before its tensor


class Allocation:
    """Memory of this process in a file without a name."""

    def __init__(self, nbytes):
        self.file = os.memfd_create("fake-gpu")
        os.ftruncate(self.file, nbytes)
        self.memory = mmap.mmap(self.file, nbytes)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.nbytes = nbytes

    def handle(self):
        return f"/proc/{os.getpid()}/fd/{self.file}".encode().ljust(HANDLE_BYTES, b"\0")


ALLOCATIONS = []  # of this process


def place(tensor):
    """Return a copy of a CPU tensor in memory that this process can export."""
    allocation = Allocation(OFFSET + max(1, tensor.nbytes))
    ALLOCATIONS.append(allocation)
    raw = torch.frombuffer(allocation.memory, dtype=torch.uint8, offset=OFFSET)
    placed = raw[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
    placed.copy_(tensor)
    return placed


def map_handle(handle):
    with open(handle.rstrip(b"\0"), "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


class EventState(ctypes.Structure):
    _fields_ = (("recorded", c_int64), ("completed", c_int64))


class FakeDevice:
    """See Device. `begin_copy` and `half_copied` are called on the stream, before a copy and in its middle."""

    def __init__(self, begin_copy=lambda: None, half_copied=lambda: None):
        self.begin_copy = begin_copy
        self.half_copied = half_copied
        self.stream = queue.SimpleQueue()
        self.event = Allocation(ctypes.sizeof(EventState))
        self.state = EventState.from_buffer(self.event.memory)
        self.states = {}  # of events of others
        self.mapped = {}  # by address
        self.opened = []  # every handle that was opened
        self.closed = []
        threading.Thread(target=self.run_stream, daemon=True).start()

    def run_stream(self):
        while True:
            self.stream.get()()

    def put(self, function, *arguments):
        """Let the stream call a function later."""
        self.stream.put(lambda: function(*arguments))

    def record(self):
        self.state.recorded += 1
        self.put(self.complete, self.state.recorded)
        return self.event.handle()

    def complete(self, number):
        self.state.completed = number

    def wait(self, event):
        if event not in self.states:
            self.states[event] = EventState.from_buffer(map_handle(event))
        state = self.states[event]
        self.put(self.wait_until, state, state.recorded)

    def wait_until(self, state, number):
        while state.completed < number:
            time.sleep(0.0001)

    def export(self, tensor):
        address = tensor.data_ptr()
        for number, allocation in enumerate(ALLOCATIONS):
            if allocation.base <= address < allocation.base + allocation.nbytes:
                offset = address - allocation.base
                return Exported(allocation.handle(), allocation.base, number, offset)
        raise AssertionError("the tensor does not lie in memory of the fake GPU: call place")

    def open(self, handle):
        memory = map_handle(handle)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.mapped[address] = memory
        self.opened.append(handle)
        return address

    def close(self, address):
        del self.mapped[address]
        self.closed.append(address)

    def copy(self, address, target):
        self.put(self.copy_halves, address, target)

    def copy_halves(self, address, target):
        self.begin_copy()
        half = target.nbytes // 2
        ctypes.memmove(target.data_ptr(), address, half)
        self.half_copied()
        ctypes.memmove(target.data_ptr() + half, address + half, target.nbytes - half)

    def synchronise(self):
        is_empty = threading.Event()
        self.put(is_empty.set)
        is_empty.wait()
