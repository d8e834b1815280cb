# SPDX-License-Identifier: Apache-2.0
"""Compute the bytes of the messages of one iteration, and check that this machine can hold them."""

import os

MODELS = ("policy", "reference", "reward")
EDGES = (  # sender and reader of each message
    ("driver", "policy"),
    ("policy", "reference"),
    ("policy", "reward"),
    ("reference", "reward"),
    ("reward", "driver"),
)
INT64_BYTES = 8
FLOAT32_BYTES = 4
MIN_STORE_BYTES = 100 * 2**20  # Ray needs 75 MiB
# As multiples of the bytes of an iteration. A queue through the driver stores most messages twice, and messages of two
# iterations can be stored at the same time. Processes hold three payloads per sender, what they expect, and copies.
STORED_ITERATIONS = 4
RESIDENT_ITERATIONS = 9


def message_bytes(
    batch_size: int, prompt_seq_len: int, samples: int = 2, max_new_tokens: int = 0
) -> dict[str, int]:
    """Return the bytes of the message of each sender; raise ValueError if the policy's is no whole number of int64.

    EDGES has their readers. Source of the formulas: kevin85421/RayCG-ChatLearn, utils.py, commit 0a603161.
    """
    tokens = batch_size * samples * (prompt_seq_len + max_new_tokens)
    if tokens % 2:
        raise ValueError(
            "batch size x samples x sequence length is odd, so the float32 log-probabilities do not fill "
            "whole int64 words: make one of the three even"
        )
    policy_bytes = tokens * (INT64_BYTES + FLOAT32_BYTES)  # token ids and log-probabilities
    reference_bytes = tokens * INT64_BYTES  # the demo counts int64 where ChatLearn sends float32
    return {
        "driver": batch_size * prompt_seq_len * INT64_BYTES,  # a prompt is not repeated per sample
        "policy": policy_bytes,
        "reference": reference_bytes,
        "reward": policy_bytes + reference_bytes,  # it sends the driver what it has received
    }


def check_memory(sizes: dict[str, int], batch_size: int) -> None:
    """Raise ValueError if memory or /dev/shm is too small for the messages. It names the largest batch size that fits.

    Raise it also if /dev/shm cannot be written, or is too small for Ray with any batch size.
    sizes: bytes of each sender's message with this batch size; they grow in proportion to it.
    """
    import psutil  # not above, because scripts say in one line that it is not installed

    if not os.access("/dev/shm", os.W_OK):
        raise ValueError(
            "/dev/shm is missing or cannot be written, and Ray needs it: mount a tmpfs there"
        )
    free = {
        "/dev/shm": psutil.disk_usage("/dev/shm").free,
        "memory": psutil.virtual_memory().available,
    }
    needed = {"/dev/shm": STORED_ITERATIONS, "memory": STORED_ITERATIONS + RESIDENT_ITERATIONS}
    iteration_bytes = sum(sizes[sender] for sender, _ in EDGES)  # what all readers receive together
    if free["/dev/shm"] < MIN_STORE_BYTES:
        free_mib = free["/dev/shm"] / 2**20
        needed_mib = MIN_STORE_BYTES / 2**20
        raise ValueError(
            f"{free_mib:.0f} MiB are free in /dev/shm, and Ray's object store takes {needed_mib:.0f} MiB with the "
            "smallest messages: enlarge it (docker run --shm-size)"
        )
    largest = {name: batch_size * free[name] // (needed[name] * iteration_bytes) for name in free}
    name = min(largest, key=largest.__getitem__)
    if largest[name] < batch_size:
        free_gib = free[name] / 2**30
        raise ValueError(
            f"--batch-size {batch_size} does not fit into the {free_gib:.2f} GiB that are free in {name}: "
            f"the largest that fits is {largest[name]}"
        )
