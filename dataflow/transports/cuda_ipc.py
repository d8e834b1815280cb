"""Messages on one GPU that all processes share: CUDA IPC handles, opened once, and events for the order.

The ring's header (shared_ring.py) stays in shared memory of the host. The bytes of a slot are on the GPU. The slot's
event comes after the kernels that write the slot, and a reader's stream waits for the event before it reads. Not yet
run on hardware: see docs/gpu.md.
"""

import pickle
from pathlib import Path

import torch
from torch.multiprocessing.reductions import reduce_tensor

from dataflow.errors import RunFailed


def _gpu_uuid() -> str:  # an index is no identity, because each process numbers its own GPUs
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def export_pool(path: Path, pool: list[torch.Tensor]) -> list[torch.cuda.Event]:
    """Write the handles of a pool into a file that each reader opens once.

    Return an event per slot, which the sender records behind the work that writes the slot.
    """
    events = [torch.cuda.Event(interprocess=True) for _ in pool]
    for event in events:
        event.record()  # an event has a handle only after it was recorded
    handles = [event.ipc_handle() for event in events]
    path.write_bytes(pickle.dumps((_gpu_uuid(), [reduce_tensor(payload) for payload in pool], handles)))
    return events


class Import:
    """A reader's side. Raise RunFailed if the sender's memory is on another GPU, or if CUDA cannot open it."""

    def __init__(self, path: Path, sender: str, reader: str) -> None:
        uuid, tensors, events = pickle.loads(path.read_bytes())
        if uuid != _gpu_uuid():
            raise RunFailed(f"{reader} and {sender} are on different GPUs, which CUDA IPC cannot connect: use nccl")
        try:
            self.tensors = [rebuild(*arguments) for rebuild, arguments in tensors]
            device = torch.cuda.current_device()
            self.events = [torch.cuda.Event.from_ipc_handle(device, handle) for handle in events]
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise RunFailed(f"{reader} cannot open the memory of {sender} ({reason}): use nccl or shm") from None

    def open(self, slot: int) -> torch.Tensor:
        """Return the slot's tensor; this process's stream waits until it is written."""
        self.events[slot].wait()
        return self.tensors[slot]
