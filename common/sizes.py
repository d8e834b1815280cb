"""Compute the bytes of the messages of one iteration, and check that this machine can hold them."""

import os
import re
import shutil
from pathlib import Path

MODELS = ("policy", "reference", "reward")
EDGES = (  # sender and reader of each message
    ("driver", "policy"), ("policy", "reference"), ("policy", "reward"), ("reference", "reward"), ("reward", "driver"),
)  # fmt: skip
INT64_BYTES, FLOAT32_BYTES = 8, 4
NUMBER_BYTES = 8  # of a sequence number
MIN_STORE_BYTES = 100 * 2**20  # Ray needs 75 MiB
# As multiples of the bytes of an iteration. A queue through the driver stores most messages twice, and messages of two
# iterations can be stored at the same time. Processes hold three payloads per sender, what they read, and copies.
STORED_ITERATIONS, RESIDENT_ITERATIONS = 4, 7


def message_bytes(
    batch_size: int, prompt_seq_len: int, samples_per_query: int = 2, max_new_tokens: int = 0
) -> dict[str, int]:
    """Return the bytes of each sender's message; raise ValueError if one does not consist of whole int64 items.

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


def check_memory(sizes: dict[str, int], batch_size: int) -> None:
    """Raise ValueError, with the largest batch size that fits, if memory or /dev/shm is too small for the messages."""
    if not os.access("/dev/shm", os.W_OK):
        raise ValueError("/dev/shm is missing or cannot be written, and Ray needs it: mount a tmpfs there")
    available = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    free = {"/dev/shm": shutil.disk_usage("/dev/shm").free, "memory": 1024 * int(available[1]) if available else 0}
    needed = {"/dev/shm": STORED_ITERATIONS, "memory": STORED_ITERATIONS + RESIDENT_ITERATIONS}
    largest = {name: batch_size * free[name] // (needed[name] * iteration_bytes(sizes)) for name in free}
    if free["/dev/shm"] < MIN_STORE_BYTES:
        largest["/dev/shm"] = 0
    name = min(largest, key=largest.__getitem__)
    if largest[name] < batch_size:
        raise ValueError(f"--batch-size {batch_size} does not fit into the {free[name] / 2**30:.2f} GiB that are free "
                         f"in {name}: the largest that fits is {largest[name]}")  # fmt: skip
