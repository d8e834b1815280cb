"""Messages on one GPU that all its processes see: CUDA IPC, exported and opened once, ordered by events.

The ring's header (ring.py) stays in the host's shared memory and says which slot holds what and
who is done with it. A slot's bytes are on the GPU; the event of the slot lies behind the kernel that
wrote it, and a reader's stream waits for it before it reads. Not yet run on hardware: see docs/gpu.md.
"""

import pickle
from pathlib import Path

import torch
from torch.multiprocessing.reductions import reduce_tensor

from common.errors import SegmentError


def gpu_identity() -> str:
    """Which physical GPU this process uses; its index says nothing, each process numbers its own."""
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


class Export:
    """The producer's end: its pool's handles in a file that the readers open once."""

    def __init__(self, path: Path, pool: list[torch.Tensor]) -> None:
        self.events = [torch.cuda.Event(interprocess=True) for _ in pool]
        for event in self.events:
            event.record()  # an event has a handle only once it was recorded
        handles = [event.ipc_handle() for event in self.events]
        path.write_bytes(pickle.dumps((gpu_identity(), [reduce_tensor(payload) for payload in pool], handles)))

    def written(self, slot: int) -> None:
        """Everything that this process's stream was told to write into the slot lies before its event."""
        self.events[slot].record()


class Import:
    """A reader's end.

    Raises:
        SegmentError: the producer's memory is on another GPU, or CUDA refuses to open it.
    """

    def __init__(self, path: Path, sender: str, reader: str) -> None:
        identity, tensors, events = pickle.loads(path.read_bytes())
        if identity != gpu_identity():
            raise SegmentError(f"{reader} and {sender} are on different GPUs, which CUDA IPC cannot join: use nccl")
        try:
            self.tensors = [rebuild(*arguments) for rebuild, arguments in tensors]
            device = torch.cuda.current_device()
            self.events = [torch.cuda.Event.from_ipc_handle(device, handle) for handle in events]
        except RuntimeError as error:
            what = str(error).partition("\n")[0]
            raise SegmentError(f"CUDA refuses {reader} the memory of {sender} ({what}): use nccl or shm") from None

    def open(self, slot: int) -> torch.Tensor:
        """The slot's tensor; what this process's stream does next waits until it is written."""
        self.events[slot].wait()
        return self.tensors[slot]
