"""Tensors that need not move: a producer writes where its readers can map it, and an edge carries a handle.

Each sender owns one file in /dev/shm, a ring of as many slots as it has payloads. Every reader maps it
once, the slots for reading only, so that nobody's in-place write can change what another reads. A
message is the plain list [sender, sequence]: Ray packs a list of strings and integers without pickle.

    header   words of 8 bytes, each with one writer
             [slot]              sequence of the message that lies in it     the producer writes
             [slots + reader]    sequence up to which the reader is done     that reader writes
    slots    page-aligned payloads

A slot is written again only when every reader is done with what was in it. Once all readers have mapped
the files their names are removed (`unlink`), so that the memory ends with the processes, however they end.
The order of writes is that of x86 and of the message itself, which passes through the kernel or a lock.
"""

import errno
import mmap
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from common.payload.pattern import POOL_SIZE

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "data-flow-"
Handle = list  # [sender's name, sequence]


class SegmentError(RuntimeError):
    """Shared memory that cannot be had, opened or reused; the message names who, and what to do."""


@contextmanager
def segments() -> Iterator[Path]:
    """A folder in shared memory for one case's files, removed whatever happens."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=SHARED_MEMORY))
    except OSError as error:
        raise SegmentError(f"cannot make a folder in {SHARED_MEMORY} ({error.strerror}): free some of it") from None
    try:
        yield folder
    finally:
        unlink(folder)


def unlink(folder: Path) -> None:
    """Remove the names; those who have mapped the files keep the memory."""
    shutil.rmtree(folder, ignore_errors=True)


def _page_aligned(count: int) -> int:
    return -(-count // mmap.PAGESIZE) * mmap.PAGESIZE


class _Segment:
    """What both ends know of a file: where header words and slots lie."""

    def __init__(self, path: Path, payload_bytes: int, readers: int, mode: Any) -> None:
        slot_bytes = _page_aligned(payload_bytes)
        header_bytes = _page_aligned(8 * (POOL_SIZE + readers))
        header = np.memmap(path, np.int64, "r+", 0, (POOL_SIZE + readers,))
        # A memmap is an array with Python hooks at every access; these words are read inside the clock.
        self.written, self.done = header.view(np.ndarray)[:POOL_SIZE], header.view(np.ndarray)[POOL_SIZE:]
        dtype: Any = np.uint8 if payload_bytes % 8 else np.int64
        shape = (payload_bytes // np.dtype(dtype).itemsize,)
        self.slots = [
            np.memmap(path, dtype, mode, header_bytes + slot * slot_bytes, shape).view(np.ndarray)
            for slot in range(POOL_SIZE)
        ]


class Ring(_Segment):
    """The producer's end.

    Args:
        folder: from `segments`.
        sender: its name, also the file's.
        payload_bytes: bytes of each slot.
        readers: the names of those who read, each once.
        timeout: seconds that a writer waits for its readers.

    Raises:
        SegmentError: the name is taken, or shared memory is full.
    """

    def __init__(self, folder: Path, sender: str, payload_bytes: int, readers: list[str], timeout: float) -> None:
        path = folder / sender
        size = _page_aligned(8 * (POOL_SIZE + len(readers))) + POOL_SIZE * _page_aligned(payload_bytes)
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
                f"{sender} finds no {size / 2**20:,.0f} MiB of shared memory: free some of {SHARED_MEMORY}, "
                "enlarge it (docker run --shm-size), or send less"
            ) from None
        super().__init__(path, payload_bytes, len(readers), "r+")
        self.sender, self.readers, self.timeout = sender, readers, timeout

    def acquire(self, sequence: int) -> None:
        """Wait until the slot of message `sequence` may be written: every reader is done with what it held.

        Raises:
            SegmentError: a reader did not release it in time; it is named.
        """
        needed = sequence - POOL_SIZE
        if needed <= 0 or int(self.done.min()) >= needed:
            return
        deadline = time.monotonic() + self.timeout
        while int(self.done.min()) < needed:
            if time.monotonic() > deadline:
                slow = self.readers[int(self.done.argmin())]
                raise SegmentError(f"{slow} has not released message {needed} of {self.sender} in {self.timeout:g} s")
            time.sleep(0.0001)

    def publish(self, sequence: int) -> None:
        """The slot holds message `sequence` now; the handle to send is [sender, sequence]."""
        self.written[sequence % POOL_SIZE] = sequence


class View(_Segment):
    """A reader's end; the slots as read-only tensors.

    Raises:
        SegmentError: the file is not there (its producer has died, or it was unlinked too early).
    """

    def __init__(self, folder: Path, sender: str, payload_bytes: int, readers: list[str], reader: str) -> None:
        import torch

        try:
            super().__init__(folder / sender, payload_bytes, len(readers), "r")
        except FileNotFoundError:
            raise SegmentError(f"{reader} finds no segment of {sender}: it has not started, or has died") from None
        self.sender, self.reader, self.index = sender, reader, readers.index(reader)
        with warnings.catch_warnings():  # torch warns that nobody may write to them: that is the point
            warnings.simplefilter("ignore", UserWarning)
            self.tensors = [torch.from_numpy(slot) for slot in self.slots]
        self.newest = 0

    def open(self, handle: Handle):
        """The tensor that the handle stands for, without copying it; valid until `release` or the next `open`.

        Raises:
            SegmentError: the slot holds another message than the handle says.
        """
        sender, sequence = handle
        if sender != self.sender or self.written[sequence % POOL_SIZE] != sequence:
            found = int(self.written[sequence % POOL_SIZE])
            raise SegmentError(
                f"{self.reader} was handed message {sequence} of {sender} and finds {found} of {self.sender}"
            )
        if sequence != self.newest:  # one message may be opened twice, and is still being read then
            self.release()  # the message before this one
            self.newest = sequence
        return self.tensors[sequence % POOL_SIZE]

    def release(self) -> None:
        """The producer may write again whatever this reader has opened so far."""
        self.done[self.index] = self.newest
