"""Messages on one GPU that all processes share: CUDA IPC handles, opened once, and events for the order.

The ring's header (shared_ring.py) stays in shared memory of the host: it says which slot holds which message, and who
has released it. The bytes of a slot are on the GPU. The slot's event comes after the kernels that write the slot, and
a reader's stream waits for the event before it reads. Not yet run on hardware: see docs/gpu.md.
"""

import pickle
from pathlib import Path

import torch
from torch.multiprocessing.reductions import reduce_tensor

from common.errors import SegmentError


def _gpu_uuid() -> str:  # an index is no identity, because each process numbers its own GPUs
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


class Export:
    """The sender's side: the handles of its pool, in a file that each reader opens once."""

    def __init__(self, path: Path, pool: list[torch.Tensor]) -> None:
        self.events = [torch.cuda.Event(interprocess=True) for _ in pool]
        for event in self.events:
            event.record()  # an event has a handle only after it was recorded
        handles = [event.ipc_handle() for event in self.events]
        content = (_gpu_uuid(), [reduce_tensor(payload) for payload in pool], handles)
        path.write_bytes(pickle.dumps(content))

    def mark_written(self, slot: int) -> None:
        """Record the slot's event behind all work that this process's stream has been given."""
        self.events[slot].record()


class Import:
    """A reader's side. Raise SegmentError if the sender's memory is on another GPU, or if CUDA cannot open it."""

    def __init__(self, path: Path, sender: str, reader: str) -> None:
        uuid, tensors, events = pickle.loads(path.read_bytes())
        if uuid != _gpu_uuid():
            raise SegmentError(f"{reader} and {sender} are on different GPUs, which CUDA IPC cannot connect: use nccl")
        try:
            self.tensors = [rebuild(*arguments) for rebuild, arguments in tensors]
            device = torch.cuda.current_device()
            self.events = [torch.cuda.Event.from_ipc_handle(device, handle) for handle in events]
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise SegmentError(f"{reader} cannot open the memory of {sender} ({reason}): use nccl or shm") from None

    def open(self, slot: int) -> torch.Tensor:
        """Return the slot's tensor; this process's stream waits until it is written."""
        self.events[slot].wait()
        return self.tensors[slot]
