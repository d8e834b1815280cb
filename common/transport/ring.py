"""Messages that need not move: a producer writes where its readers can map it, and an edge carries a handle.

Each task owns one file in shared memory, a ring of as many slots as it has payloads. Every reader maps it once, the
slots for reading only, so that nobody's in-place write can change what another reads. What travels is the plain list
[task, number]: Ray packs a list of strings and integers without pickle.

    header   words of 8 bytes, each with one writer
             [slot]              number of the message that lies in it       the producer writes
             [slots + reader]    number up to which the reader is done       that reader writes
    slots    page-aligned messages, packed by the table of flow/message.py

A slot is written again only when every reader is done with what was in it. Once all readers have mapped the files
their names are removed, so that the memory ends with the processes, however they end.
The order of writes is that of x86 and of the message itself, which passes through the kernel or a lock.
"""

import errno
import mmap
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common.errors import SegmentError
from common.flow.message import Message
from common.payload.forms import unpack
from common.payload.leaves import Payload

Handle = list  # [task, number]


def _page_aligned(count: int) -> int:
    return -(-count // mmap.PAGESIZE) * mmap.PAGESIZE


class _Segment:
    """What both ends know of a file: where header words and slots lie."""

    def __init__(self, path: Path, slot_bytes: int, slots: int, readers: int, mode: Any) -> None:
        header = np.memmap(path, np.int64, "r+", 0, (slots + readers,))
        # Read inside the clock: a word of a memoryview costs a tenth of an array's.
        words = header.view(np.ndarray).data
        self.written, self.done = words[:slots], words[slots:]
        first, stride = _page_aligned(8 * (slots + readers)), _page_aligned(slot_bytes)
        self.slots = [
            np.memmap(path, np.uint8, mode, first + slot * stride, (slot_bytes,)).view(np.ndarray)
            for slot in range(slots)
        ]


class Ring(_Segment):
    """The producer's end.

    Args:
        folder: of the run, in shared memory.
        sender: the task, also the file's name.
        readers: the names of those who read, each once.
        timeout: seconds that a writer waits for its readers.

    Raises:
        SegmentError: the name is taken, or shared memory is full.
    """

    def __init__(
        self, folder: Path, sender: str, slot_bytes: int, slots: int, readers: list[str], timeout: float
    ) -> None:
        path = folder / sender
        size = _page_aligned(8 * (slots + len(readers))) + slots * _page_aligned(slot_bytes)
        try:
            with path.open("xb") as file:
                os.posix_fallocate(file.fileno(), 0, size)  # else a full /dev/shm is a SIGBUS at the first write
        except FileExistsError:
            raise SegmentError(f"the segment {sender} exists already: two producers have one name") from None
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            path.unlink(missing_ok=True)
            raise SegmentError(
                f"{sender} finds no {size / 2**20:,.0f} MiB of shared memory: free some of {folder.parent}, "
                "enlarge it (docker run --shm-size), or send less"
            ) from None
        super().__init__(path, slot_bytes, slots, len(readers), "r+")
        self.sender, self.readers, self.timeout, self.newest = sender, readers, timeout, 0

    def acquire(self, number: int) -> None:
        """Wait until the slot of this message may be written: every reader is done with what it held.

        Raises:
            SegmentError: a reader did not release it in time; it is named.
        """
        needed = number - len(self.slots)
        if needed <= 0 or min(self.done) >= needed:
            return
        deadline = time.monotonic() + self.timeout
        while min(self.done) < needed:
            if time.monotonic() > deadline:
                slow = self.readers[list(self.done).index(min(self.done))]
                raise SegmentError(f"{slow} has not released message {needed} of {self.sender} in {self.timeout:g} s")
            time.sleep(0.0001)  # a reader that keeps a view holds it for far longer

    def publish(self, number: int) -> None:
        """The slot holds this message now; the handle to send is [sender, number]."""
        self.written[number % len(self.slots)] = number
        self.newest = number

    def buffer(self, slot: int) -> torch.Tensor:
        """The slot as a flat tensor, for the producer to write."""
        return torch.from_numpy(self.slots[slot])


class View(_Segment):
    """A reader's end; the messages as read-only views.

    keep: how many messages, the newest one among them, may be held open at a time.

    Raises:
        SegmentError: the file is not there (its producer has died, or it was unlinked too early).
    """

    def __init__(
        self, folder: Path, sender: str, message: Message, slot_bytes: int, slots: int, keep: int,
        readers: list[str], reader: str,
    ) -> None:  # fmt: skip
        try:
            super().__init__(folder / sender, slot_bytes, slots, len(readers), "r")
        except FileNotFoundError:
            raise SegmentError(f"{reader} finds no segment of {sender}: it has not started, or has died") from None
        self.sender, self.reader, self.index, self.keep = sender, reader, readers.index(reader), keep
        self.message, self.newest, self.released = message, 0, 0
        self.strings = any(field.python for field in message.fields)
        if slot_bytes >= message.packed_bytes:  # on a GPU the payload is not here
            with warnings.catch_warnings():  # torch warns that nobody may write to them: that is the point
                warnings.simplefilter("ignore", UserWarning)
                self.buffers = [torch.from_numpy(slot) for slot in self.slots]
            self.payloads = [unpack(buffer, message) for buffer in self.buffers]

    def check(self, handle: Handle) -> int:
        """The slot that the handle stands for; what lies in it stays until `keep` more are opened, or `release`.

        Raises:
            SegmentError: the slot holds another message than the handle says.
        """
        sender, number = handle
        slot = number % len(self.slots)
        if sender != self.sender or self.written[slot] != number:
            raise SegmentError(
                f"{self.reader} was handed message {number} of {sender} and finds {self.written[slot]} of {self.sender}"
            )
        if number > self.newest:
            self.newest = number
            if number - self.keep > self.released:
                self.done[self.index] = self.released = number - self.keep
        return slot

    def open(self, handle: Handle) -> Payload:
        """The payload that the handle stands for, without copying it; strings are Python's own."""
        slot = self.check(handle)
        return unpack(self.buffers[slot], self.message) if self.strings else self.payloads[slot]

    def release(self) -> None:
        """The producer may write again whatever this reader has opened so far."""
        self.done[self.index] = self.released = self.newest
