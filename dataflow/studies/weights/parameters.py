# SPDX-License-Identifier: Apache-2.0
"""Serve a model's parameters while updates replace them, and find out whether readers see two versions at once.

An engine must not read its parameters while they are being replaced: this time is the stall. A thread of the receiver
reads all the time, as an engine does, and stops only for the stall. It reads some tensors: the sequence number in the
first bytes, and the last bytes, which are inverted with every update. A read that finds two versions is torn.
"""

import ctypes
import random
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch

from dataflow.endpoints.inbox import read_first_bytes
from dataflow.endpoints.payload import number_bytes
from dataflow.endpoints.tensors import list_tensors
from dataflow.flows.message import NUMBER_BYTES, Field, Message

READ_TENSORS = 8  # in one read of the thread
PAUSE_SECONDS = 0.001  # between two reads, so that they take little time from the update
ALL_BITS = 256**NUMBER_BYTES - 1
read_number = (ctypes.c_char * NUMBER_BYTES).from_address


class Parameters:
    """The tensors that a receiver serves. `tasks` has the messages that each of its tasks installs, in their order."""

    def __init__(self, tasks: Mapping[str, Sequence[Message]]) -> None:
        """Serve nothing before the first update. `tasks` has the messages that each task installs, in their order."""
        self.tasks = [*tasks]
        # A read needs a whole sequence number and an end that does not overlap it.
        fields: list[Field] = []
        for message in chain.from_iterable(tasks.values()):
            fields += message.fields
        self.readable = [
            number_bytes(f) == NUMBER_BYTES and f.bytes >= 2 * NUMBER_BYTES for f in fields
        ]
        self.arrived: dict[str, Sequence[Any]] = {}  # task -> its tensors of the update in flight
        self.served: list[torch.Tensor] = []
        # The last bytes of each served tensor after an update with an even number.
        self.even_ends: list[int] = []
        self.changes = 0  # odd: the engine is stopped
        self.stalled_at = 0.0
        self.reads = self.torn_reads = 0
        self.failure: Exception | None = None  # of the thread that reads

    def stop_engine(self) -> None:
        """Begin the stall, if it has not begun."""
        if self.changes % 2 == 0:
            self.stalled_at = time.perf_counter()
            self.changes += 1

    def install(self, task: str, payloads: Sequence[Any]) -> float:
        """Hold a task's tensors, and return 0. With those of the last task, serve all, and return the stall (s).

        `served` has only those that are large enough to be read. The first update starts the thread that reads them.
        """
        self.arrived[task] = payloads
        if len(self.arrived) < len(self.tasks):
            return 0.0
        self.stop_engine()
        arrived: list[torch.Tensor] = []
        for name in self.tasks:
            for payload in self.arrived[name]:
                arrived += list_tensors(payload)
        replaced_tensors = self.served
        self.served = [
            tensor
            for tensor, is_readable in zip(arrived, self.readable, strict=True)
            if is_readable
        ]
        self.changes += 1
        seconds = time.perf_counter() - self.stalled_at
        del replaced_tensors  # here, so that the stall does not contain the time of freeing them
        self.arrived.clear()
        if not self.even_ends and self.served:
            self.even_ends = [
                read_end(tensor) ^ (ALL_BITS * (read_begin(tensor) % 2)) for tensor in self.served
            ]
            threading.Thread(target=read_forever, args=(weakref.ref(self),), daemon=True).start()
        return seconds

    def read(self) -> None:
        """Read some tensors, unless the engine is stopped. A read during which it was stopped does not count."""
        changes = self.changes
        served = self.served
        if changes % 2 == 0:
            chosen = random.sample(range(len(served)), min(READ_TENSORS, len(served)))
            versions: set[int] = set()
            for index in chosen:
                versions.update(self.read_versions(served[index], index))
            if self.changes == changes:  # the engine was not stopped during the read
                self.reads += 1
                self.torn_reads += len(versions) > 1

    def read_versions(self, tensor: torch.Tensor, index: int) -> tuple[int, int]:
        """Return the number at the beginning of a tensor, and the one that its end belongs to: the same, or -1."""
        number = read_begin(tensor)
        has_same_end = read_end(tensor) == self.even_ends[index] ^ (ALL_BITS * (number % 2))
        return number, number if has_same_end else -1


def read_forever(reference: "weakref.ref[Parameters]") -> None:
    """Read until the parameters are no longer used."""
    while parameters := reference():
        try:
            parameters.read()
        except Exception as error:
            parameters.failure = error
            return
        del parameters
        time.sleep(PAUSE_SECONDS)


def read_begin(tensor: torch.Tensor) -> int:
    """Return the sequence number in the first bytes of a tensor."""
    return int.from_bytes(read_first_bytes(tensor, NUMBER_BYTES, read_number), "little")


def read_end(tensor: torch.Tensor) -> int:
    """Return the last bytes of a contiguous tensor as a number."""
    if tensor.is_cpu:
        end = read_number(tensor.data_ptr() + tensor.nbytes - NUMBER_BYTES).raw
    else:
        end = bytes(tensor.reshape(-1).view(torch.uint8)[-NUMBER_BYTES:].tolist())
    return int.from_bytes(end, "little")
