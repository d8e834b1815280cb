# SPDX-License-Identifier: Apache-2.0
"""Remove what CUDA leaves in /dev/shm of a process that has shared GPU memory or events and was killed."""

from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")


def find_cuda_files(pid: int, folder: Path = SHARED_MEMORY) -> list[Path]:
    """Return the files of a process: cuda.shm.USER.PROCESS.NUMBER, with the process id in hexadecimal digits.

    NVIDIA documents no names. They were seen with driver 580.159.
    """
    return [*folder.glob(f"cuda.shm.*.{pid:x}.*")]


def remove_cuda_files(pid: int) -> None:
    """Remove the files of a process that has ended. The caller knows that, because another may have its id by now."""
    for path in find_cuda_files(pid):
        with suppress(OSError):
            path.unlink()
