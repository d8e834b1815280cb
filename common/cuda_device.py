# SPDX-License-Identifier: Apache-2.0
"""Do what CUDA IPC needs on a GPU: export the memory of a tensor and an event, open those of another process, copy.

The events are torch's own (torch.cuda.Event with interprocess=True). The memory is handled by functions of the CUDA
driver (libcuda.so.1), because torch has no public function for it. They are described in the CUDA Driver API Reference
("Memory Management", "Unified Addressing"), and the numbers are those of cuda.h. A handle works in other processes of
the same machine, and not in the process that made it.
"""

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NamedTuple, Protocol

import torch

from common import SuiteError

HANDLE_BYTES = 64  # of a handle of memory (CU_IPC_HANDLE_SIZE), and of one of an event
OPEN_LAZILY = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag that there is
# CUpointer_attribute
BUFFER_ID = 7  # an allocation that comes later at the same address has another one
IS_IPC_CAPABLE = 10
RANGE_START = 11


class Exported(NamedTuple):
    """Where the memory of a tensor lies, for another process."""

    handle: bytes  # of the whole allocation: HANDLE_BYTES
    base: int  # address of the allocation in the process that exports it
    allocation: int  # an id that no other allocation of this process has
    offset: int  # bytes from the begin of the allocation to the tensor


class Device(Protocol):
    """The operations of a GPU that the communicator needs, on the current stream of the calling thread.

    The first one of a thread must be `record`, `wait` or `synchronise`.
    """

    def record(self) -> bytes:
        """Record what the stream has to do until here as an event, and return the handle of the event."""

    def export(self, tensor: torch.Tensor) -> Exported:
        """Return where the memory of a tensor is; raise SuiteError if it cannot be shared."""

    def wait(self, event: bytes) -> None:
        """Make the stream wait for the event of another process, as it was recorded last."""

    def open(self, handle: bytes) -> int:
        """Map an allocation of another process, and return its address here. This is slow."""

    def copy(self, address: int, target: torch.Tensor) -> None:
        """Make the stream copy from this address into all of a contiguous tensor."""

    def synchronise(self) -> None:
        """Wait until the stream has nothing to do."""

    def close(self, address: int) -> None:
        """Unmap an allocation that was opened."""


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle, which the driver gets by value."""

    _fields_ = (("reserved", ctypes.c_ubyte * HANDLE_BYTES),)


class CudaDevice:
    """A GPU of this process: see Device. Its context is the one that torch uses.

    A call of torch makes this context the current one of a thread, and the driver's functions need that.
    """

    def __init__(self) -> None:
        self.driver: Any = ctypes.CDLL("libcuda.so.1")
        # One event for all messages: a handle is undefined after its event was destroyed.
        self.event = torch.cuda.Event(interprocess=True)
        self.events_of_others: dict[bytes, Any] = {}

    def record(self) -> bytes:
        self.event.record()
        return self.event.ipc_handle()

    def export(self, tensor: torch.Tensor) -> Exported:
        """Return where the memory of a tensor is, with a handle that other processes can open. Nothing is copied.

        Raise SuiteError if the memory cannot be shared, or if a function of the driver fails.
        """
        address = tensor.data_ptr()
        if not self._attribute(IS_IPC_CAPABLE, address):
            raise SuiteError(
                "CUDA IPC cannot share the memory of a tensor: "
                "leave backend and expandable_segments out of PYTORCH_CUDA_ALLOC_CONF"
            )
        base = self._attribute(RANGE_START, address)
        handle = IpcHandle()
        self._call("cuIpcGetMemHandle", byref(handle), c_uint64(base))
        return Exported(
            handle=bytes(handle.reserved),
            base=base,
            allocation=self._attribute(BUFFER_ID, address),
            offset=address - base,
        )

    def wait(self, event: bytes) -> None:
        opened = self.events_of_others.get(event)
        if opened is None:
            device = torch.device("cuda", torch.cuda.current_device())
            opened = torch.cuda.Event.from_ipc_handle(device, event)
            self.events_of_others[event] = opened
        opened.wait()

    def open(self, handle: bytes) -> int:
        address = c_uint64()
        of_memory = IpcHandle.from_buffer_copy(handle)
        self._call("cuIpcOpenMemHandle_v2", byref(address), of_memory, c_uint(OPEN_LAZILY))
        return address.value

    def copy(self, address: int, target: torch.Tensor) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        self._call(
            "cuMemcpyDtoDAsync_v2",
            c_uint64(target.data_ptr()),
            c_uint64(address),
            c_size_t(target.nbytes),
            c_void_p(stream),
        )

    def synchronise(self) -> None:
        torch.cuda.current_stream().synchronize()

    def close(self, address: int) -> None:
        self._call("cuIpcCloseMemHandle", c_uint64(address))

    def _attribute(self, attribute: int, address: int) -> int:
        """Return an attribute of the allocation at this address. Those used here have 8 bytes or fewer."""
        value = c_uint64()
        self._call("cuPointerGetAttribute", byref(value), c_int(attribute), c_uint64(address))
        return value.value

    def _call(self, function: str, *arguments: Any) -> None:
        """Call a function of the driver; raise SuiteError with its name and that of the error."""
        code = getattr(self.driver, function)(*arguments)
        if code:
            name = c_char_p()
            self.driver.cuGetErrorName(code, byref(name))
            error = name.value.decode() if name.value else f"error {code}"
            raise SuiteError(f"{function} failed with {error}: use shm in place of cuda-ipc")
