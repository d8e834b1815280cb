"""Remove a file from the page cache of the kernel, so that its next reader reads from the disk."""

import ctypes
import math
import os
import time
from mmap import ACCESS_COPY, PAGESIZE, mmap

DROP_SECONDS = 2  # pages that the kernel still works on cannot be dropped


def drop_from_page_cache(path: str) -> bool:
    """Remove a file that nobody has mapped from the page cache. Return whether its next reader reads from the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        deadline = time.monotonic() + DROP_SECONDS
        while time.monotonic() < deadline:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if not has_cached_pages(descriptor):
                return True
            time.sleep(0.05)
        return False
    finally:
        os.close(descriptor)


def has_cached_pages(descriptor: int) -> bool:
    """Whether any page of an open file is in memory. To read a byte would not tell, because the kernel reads ahead."""
    with mmap(descriptor, 0, access=ACCESS_COPY) as pages:
        first = ctypes.c_char.from_buffer(pages)
        resident = (ctypes.c_ubyte * math.ceil(len(pages) / PAGESIZE))()
        is_unknown = ctypes.CDLL(None).mincore(ctypes.byref(first), ctypes.c_size_t(len(pages)), resident) != 0
        del first  # otherwise the map cannot be closed
    return is_unknown or any(resident)
