"""Compute the bytes of the messages of one iteration, and check that this machine can hold them."""

import re
import shutil
from pathlib import Path

MODELS = ("policy", "reference", "reward")
EDGES = (  # sender and reader of each message
    ("driver", "policy"), ("policy", "reference"), ("policy", "reward"), ("reference", "reward"), ("reward", "driver"),
)  # fmt: skip
INT64_BYTES, FLOAT32_BYTES = 8, 4
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


def find_lack(sizes: dict[str, int], batch_size: int) -> str | None:
    """Return which memory is too small, with the largest batch size that fits; None if everything fits."""
    available = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    needs = {  # the object store is in /dev/shm, which is a part of the memory
        "/dev/shm": (shutil.disk_usage("/dev/shm").free, store_bytes(sizes)),
        "memory": (
            1024 * int(available[1]) if available else 0,
            store_bytes(sizes) + RESIDENT_ITERATIONS * iteration_bytes(sizes),
        ),
    }
    name = min(needs, key=lambda name: needs[name][0] / needs[name][1])
    free, needed = needs[name]
    if free >= needed:
        return None
    largest = batch_size * free // needed if free > MIN_STORE_BYTES else 0
    advice = f"the largest --batch-size that fits is {largest}" if largest else "free some, or enlarge it"
    return f"{name} has {free / 2**30:.2f} GiB free, and {needed / 2**30:.2f} GiB are needed: {advice}"
