# SPDX-License-Identifier: Apache-2.0
"""Send tensors between actors of a compiled graph that share one GPU: the reader copies them once, on the card.

Between actors, a compiled graph sends tensors by a Communicator. Ray's own one is NCCL, which wants a GPU per actor.
This one uses CUDA IPC. Memory of the host that all actors map has a mailbox for each sender and reader:

    sender                                          reader
    records an event on its stream
    writes the handles of the event and the memory
    sent += 1                            ------->   its stream waits for the event
                                                    maps the memory, at the first message from this allocation
                                                    copies the tensor, and waits for the copy
    send() returns                       <-------   copied += 1

So a sender may write into its tensor again as soon as send() has returned, and a reader owns its copy. A mailbox holds
one message. If a message has several readers, they get it one after the other, in an order that Ray chooses.

A sender must not give memory back to the GPU while readers have it mapped: CUDA leaves undefined what happens then.
torch keeps the memory of freed tensors, until torch.cuda.empty_cache() or until the GPU is full.

Each counter has one writer. That a reader sees the handles before the counter relies on x86, where writes become
visible in their order. The host's memory is a file without a name, so nothing is left behind, whoever dies. Ray's
interface is that of Ray 2.60.
"""

import ctypes
import mmap
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int64, c_ubyte, c_uint64
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import RayChannelError
from ray.experimental.channel.accelerator_context import register_accelerator_context
from ray.experimental.channel.communicator import Communicator

from common import SuiteError
from common.cuda_device import HANDLE_BYTES, CudaDevice, Device

# A wait is short, because the other actor is at this message too. After this time, it no longer keeps a core busy.
BUSY_SECONDS = 0.002
PAUSE_SECONDS = 0.0001
TIMEOUT_SECONDS = 300.0

Handle = c_ubyte * HANDLE_BYTES


class Mailbox(ctypes.Structure):
    """What a sender tells a reader about the newest message, and what the reader answers."""

    _fields_ = (
        ("sent", c_int64),  # messages; all fields down to `event` are written by the sender
        ("nbytes", c_int64),  # of the tensor
        ("base", c_uint64),  # see Exported
        ("allocation", c_uint64),
        ("offset", c_int64),
        ("memory", Handle),
        ("event", Handle),
        ("copied", c_int64),  # messages; written by the reader
        ("copied_bytes", c_int64),  # of all messages; written by the reader
    )


class SharedMailboxes:
    """Mailboxes of all pairs of `count` actors, in a file without a name that other processes of this machine map.

    Its copies in other processes open it by the file descriptor of this process, so this one must live until then.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        # The first number is 1 after an actor has left, and the mailboxes are unusable from then on.
        size = ctypes.sizeof(c_int64) + count * count * ctypes.sizeof(Mailbox)
        self.file = os.fdopen(os.memfd_create("cuda-ipc"), "r+b", buffering=0)
        self.file.truncate(size)
        self.path = f"/proc/{os.getpid()}/fd/{self.file.fileno()}"

    def __getstate__(self) -> dict[str, Any]:
        return {"count": self.count, "path": self.path}

    @cached_property
    def memory(self) -> mmap.mmap:
        """Map the file; raise SuiteError if this process cannot open it."""
        try:
            with open(self.path, "r+b") as file:
                return mmap.mmap(file.fileno(), 0)
        except OSError as error:
            raise SuiteError(
                f"{self.path} cannot be opened ({error.strerror}): start all actors on the driver's machine, as its "
                "user, and in its container"
            ) from None

    @cached_property
    def closed(self) -> c_int64:
        return c_int64.from_buffer(self.memory)

    def mailbox(self, sender: int, reader: int) -> Mailbox:
        """Return the mailbox of two ranks."""
        index = sender * self.count + reader
        offset = ctypes.sizeof(c_int64) + index * ctypes.sizeof(Mailbox)
        return Mailbox.from_buffer(self.memory, offset)


class Opened(NamedTuple):
    """Memory of a sender that is mapped."""

    allocation: int
    address: int


class Member:
    """One actor's side of the mailboxes. One thread sends and receives; any thread may close."""

    def __init__(
        self,
        mailboxes: SharedMailboxes,
        rank: int,
        names: Sequence[str],
        device: Device,
        timeout: float,
    ) -> None:
        """Map the mailboxes of this rank; raise SuiteError if this process cannot open their file. names: by rank."""
        self.names = names
        self.device = device
        self.timeout = timeout  # seconds that one wait may take
        self.group_closed = mailboxes.closed
        self.outgoing = [mailboxes.mailbox(rank, reader) for reader in range(len(names))]
        self.incoming = [mailboxes.mailbox(sender, rank) for sender in range(len(names))]
        # By the sender's rank, and the address of the allocation there.
        self.opened: dict[tuple[int, int], Opened] = {}
        self.lock = Lock()  # while memory of others is in use

    def send(self, tensor: torch.Tensor, reader: int) -> None:
        """Send a contiguous tensor, and return when the reader has copied it.

        Raise RayChannelError if an actor has left or given up, and SuiteError if the tensor has gaps, if its memory
        cannot be shared, or if the reader does not copy it in time.
        """
        mailbox = self.outgoing[reader]
        self._check_open()
        if not tensor.is_contiguous():
            raise SuiteError("cuda-ipc sends contiguous tensors only: call tensor.contiguous()")
        if tensor.nbytes:
            self._write(mailbox, tensor)
        mailbox.nbytes = tensor.nbytes
        number = mailbox.sent + 1
        mailbox.sent = number  # last: now the reader looks at the rest
        self._wait(
            lambda: mailbox.copied == number,
            f"{self.names[reader]} did not copy a message",
        )

    def _write(self, mailbox: Mailbox, tensor: torch.Tensor) -> None:
        """Write the handles of the tensor's memory, and of the event after which it has its values.

        The reader looks at them only after `sent` has grown.
        """
        event = self.device.record()
        exported = self.device.export(tensor)
        mailbox.event = Handle.from_buffer_copy(event)
        mailbox.memory = Handle.from_buffer_copy(exported.handle)
        mailbox.base = exported.base
        mailbox.allocation = exported.allocation
        mailbox.offset = exported.offset

    def receive(self, sender: int, make_target: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Wait for the next message of a sender, and return it as a copy in the target.

        Raise RayChannelError if an actor has left or given up, and SuiteError if no message is sent in time, if its
        size is not that of the target, or if CUDA cannot open or copy its memory.
        """
        mailbox = self.incoming[sender]
        self._wait(
            lambda: mailbox.sent > mailbox.copied,
            f"{self.names[sender]} did not send a message",
        )
        target = make_target()
        if target.nbytes != mailbox.nbytes:
            raise SuiteError(
                f"expected {target.nbytes} bytes of {self.names[sender]}, got {mailbox.nbytes}"
            )
        if target.nbytes:
            self._copy(sender, mailbox, target)
        mailbox.copied_bytes += target.nbytes
        mailbox.copied += 1  # last: now the sender may write into its tensor
        return target

    def _copy(self, sender: int, mailbox: Mailbox, target: torch.Tensor) -> None:
        with self.lock:
            self._check_open()
            self.device.wait(bytes(mailbox.event))
            address = self._open(sender, mailbox) + mailbox.offset
            self.device.copy(address, target)
            self.device.synchronise()
        # A sender that has given up waiting may have written into its tensor.
        self._check_open()

    def _open(self, sender: int, mailbox: Mailbox) -> int:
        """Return the address of the sender's allocation, which is mapped once."""
        key = (sender, mailbox.base)
        known = self.opened.get(key)
        if known and known.allocation == mailbox.allocation:
            return known.address
        if known:  # the sender has freed it
            del self.opened[key]
            self.device.close(known.address)
        address = self.device.open(bytes(mailbox.memory))
        self.opened[key] = Opened(mailbox.allocation, address)
        return address

    def _wait(self, is_done: Callable[[], bool], failure: str) -> None:
        """Wait for the other actor; raise RayChannelError if one has left, and SuiteError after the timeout."""
        self._check_open()
        start = time.monotonic()
        while not is_done():
            self._check_open()
            waited = time.monotonic() - start
            if waited > self.timeout:
                self.group_closed.value = 1  # what arrives later must not be used
                raise SuiteError(f"{failure} in {self.timeout:g} s")
            time.sleep(0 if waited < BUSY_SECONDS else PAUSE_SECONDS)

    def _check_open(self) -> None:
        if self.group_closed.value:
            raise RayChannelError("an actor has left the group of cuda-ipc")

    def close(self) -> None:
        """End the waits of all actors, and unmap the memory of others."""
        self.group_closed.value = 1
        with self.lock:
            if self.opened:
                self.device.synchronise()
            while self.opened:
                _, known = self.opened.popitem()
                self.device.close(known.address)


class CudaIpcCommunicator(Communicator):
    """Ray's interface to the mailboxes. The rank of an actor is its place in `actors`.

    The driver makes it, and Ray sends a copy to each actor and calls `initialize` there.
    """

    def __init__(
        self,
        actors: Mapping[str, Any],
        timeout: float = TIMEOUT_SECONDS,
        device_class: Callable[[], Device] = CudaDevice,
    ) -> None:
        self.names = list(actors)
        self.actors = list(actors.values())
        self.timeout = timeout
        self.device_class = device_class
        self.mailboxes = SharedMailboxes(len(actors))
        self.rank: int | None = None
        self.member: Any = None  # a Member, in an actor

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"rank": None, "member": None}

    def initialize(self, rank: int) -> None:
        self.rank = rank
        self.member = Member(self.mailboxes, rank, self.names, self.device_class(), self.timeout)

    def get_actor_handles(self) -> list[Any]:
        return self.actors

    def get_rank(self, actor: Any) -> int:
        return self.actors.index(actor)

    def get_self_rank(self) -> int | None:
        return self.rank

    def get_world_size(self) -> int:
        return len(self.actors)

    def send(self, value: torch.Tensor, peer_rank: int) -> None:
        self.member.send(value, peer_rank)

    def recv(
        self,
        shape: Any,
        dtype: torch.dtype,
        peer_rank: int,
        allocator: Callable[[Any, torch.dtype], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        assert allocator is not None, "Ray's channel allocates the tensor"
        return self.member.receive(peer_rank, lambda: allocator(shape, dtype))

    def copied_bytes(self, sender: str, reader: str) -> int:
        """Return the bytes that an actor has copied from the memory of another one so far. The driver may ask."""
        sender_rank = self.names.index(sender)
        reader_rank = self.names.index(reader)
        return self.mailboxes.mailbox(sender_rank, reader_rank).copied_bytes

    def require_copied(self, expected: Mapping[tuple[str, str], int]) -> None:
        """Raise SuiteError if readers have copied other bytes than these, by the names of sender and reader."""
        for (sender, reader), expected_bytes in expected.items():
            copied = self.copied_bytes(sender, reader)
            if copied != expected_bytes:
                raise SuiteError(
                    f"{reader} copied {copied} bytes from {sender} by CUDA IPC, not {expected_bytes}: "
                    "the others took another data path"
                )

    def destroy(self) -> None:
        if self.member:
            self.member.close()

    def get_transport_name(self) -> str:
        return "accelerator"

    @classmethod
    def generate_communicator_id(cls) -> str:
        return uuid.uuid4().hex

    @property
    def recv_stream(self) -> Any:
        raise NotImplementedError("cuda-ipc cannot overlap communication with computation")

    @property
    def send_stream(self) -> Any:
        raise NotImplementedError("cuda-ipc cannot overlap communication with computation")

    def allgather(self, send_buf: torch.Tensor, recv_buf: torch.Tensor) -> None:
        raise NotImplementedError("cuda-ipc has no collective operations")

    def allreduce(self, send_buf: torch.Tensor, recv_buf: torch.Tensor, op: Any = None) -> None:
        raise NotImplementedError("cuda-ipc has no collective operations")

    def reducescatter(self, send_buf: torch.Tensor, recv_buf: torch.Tensor, op: Any = None) -> None:
        raise NotImplementedError("cuda-ipc has no collective operations")


def connect_actors(
    actors: Mapping[str, Any],
    timeout: float = TIMEOUT_SECONDS,
    device_class: Callable[[], Device] = CudaDevice,
) -> CudaIpcCommunicator:
    """Return a communicator of these actors, by name; raise SuiteError if they are on different GPUs or nodes.

    Pass it to `with_tensor_transport` of each message between them.
    """
    calls = [actor.__ray_call__.remote(prepare_actor) for actor in actors.values()]
    places = dict(zip(actors, ray.get(calls), strict=True))
    if len(set(places.values())) > 1:
        found = ", ".join(f"{name} on {place}" for name, place in places.items())
        raise SuiteError(f"cuda-ipc needs all actors on one GPU, and found {found}")
    return CudaIpcCommunicator(actors, timeout, device_class)


def prepare_actor(actor: Any) -> str:
    """Tell Ray in an actor that its communicator is this one, and return the GPU and the node of the actor.

    Otherwise, Ray would ask NCCL for the id of the group, which needs cupy.
    """
    register_accelerator_context("cuda", CudaIpcCommunicator)
    gpus = "+".join(map(str, ray.get_gpu_ids())) or "none"
    node = ray.get_runtime_context().get_node_id()
    return f"GPU {gpus} of node {node[:8]}"
