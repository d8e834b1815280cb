"""Compute the bytes of the messages of one iteration, and check that this machine can hold them."""

import math
import shutil
from contextlib import suppress
from pathlib import Path

INT64_BYTES, FLOAT32_BYTES = 8, 4
DRIVER, MODELS = "driver", ("policy", "reference", "reward")
EDGES = (  # sender, reader
    ("driver", "policy"), ("policy", "reference"), ("policy", "reward"), ("reference", "reward"), ("reward", "driver"),
)  # fmt: skip
# As multiples of the bytes of an iteration: the object store holds two iterations, in which queues through the driver
# store most messages twice. All processes hold the pools of payloads, the messages that they read, and copies.
STORED_ITERATIONS, RESIDENT_ITERATIONS = 4, 7
MIN_STORE_BYTES = 100 * 2**20  # Ray needs 75 MiB


def message_bytes(
    batch_size: int, prompt_seq_len: int, samples_per_query: int = 2, max_new_tokens: int = 0
) -> dict[str, int]:
    """Return the bytes of the message of each sender; raise ValueError if one does not consist of int64 items.

    Source of the formulas: kevin85421/RayCG-ChatLearn, utils.py, commit 0a603161.
    """
    tokens = batch_size * samples_per_query * (prompt_seq_len + max_new_tokens)
    if tokens % 2:
        raise ValueError("batch size x samples x sequence length is odd, so the float32 log-probabilities do not fill "
                         "whole int64 words: make one of the three even")  # fmt: skip
    policy_bytes = tokens * (INT64_BYTES + FLOAT32_BYTES)  # token ids and log-probabilities
    reference_bytes = tokens * INT64_BYTES  # the demo counts int64 where ChatLearn sends float32
    return {
        "driver": batch_size * prompt_seq_len * INT64_BYTES,  # a prompt is not repeated per sample
        "policy": policy_bytes,
        "reference": reference_bytes,
        "reward": policy_bytes + reference_bytes,
    }


def iteration_bytes(sizes: dict[str, int]) -> int:
    """Return the bytes that all readers of an iteration receive together."""
    return sum(sizes[sender] for sender, _ in EDGES)


def store_bytes(sizes: dict[str, int]) -> int:
    """Return the size of the object store that the messages need."""
    return max(MIN_STORE_BYTES, STORED_ITERATIONS * iteration_bytes(sizes))


def find_lack(sizes: dict[str, int], batch_size: int) -> str | None:
    """Return which memory is too small for the messages, and the largest batch size that fits; None if all is enough.

    The object store is in /dev/shm, which is a part of the memory.
    """
    bytes_per_sample = iteration_bytes(sizes) / batch_size
    for name, free_bytes, iterations in (
        ("/dev/shm", shutil.disk_usage("/dev/shm").free, STORED_ITERATIONS),
        ("memory", available_memory(), RESIDENT_ITERATIONS + STORED_ITERATIONS),
    ):
        needed_bytes = iterations * iteration_bytes(sizes)
        if max(needed_bytes, MIN_STORE_BYTES) > free_bytes:
            fitting = math.floor(free_bytes / (iterations * bytes_per_sample))
            advice = f"give --batch-size {fitting} or less" if fitting and free_bytes > MIN_STORE_BYTES else "free some"
            return (f"{name} is too small: --batch-size {batch_size} needs {needed_bytes / 2**30:.2f} GiB, and "
                    f"{free_bytes / 2**30:.2f} GiB are free: {advice}")  # fmt: skip
    return None


def available_memory() -> int:
    """Return the bytes of memory that new processes can have: of the machine, or of the limit of this container."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free_bytes = [int(lines["MemAvailable"].split()[0]) * 1024]
    group = Path("/sys/fs/cgroup")  # of a container, if the kernel has control groups of version 2
    with suppress(OSError, KeyError, ValueError):  # without a limit, it is the word max
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used_bytes = int((group / "memory.current").read_text()) - int(statistics["inactive_file"])
        free_bytes.append(int((group / "memory.max").read_text()) - used_bytes)
    return min(free_bytes)
