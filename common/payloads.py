"""The bytes that travel, and the check that they arrived: numpy alone, no Ray, no torch.

Every trip's payload differs. A sender owns POOL_SIZE distinct random payloads, sends number
`trip % POOL_SIZE` and stamps the trip's number into its first word. A reader compares the stamp and
a 64-bit hash of everything else; only when one differs is the expected payload made again, and the
wrong bytes counted one by one.
"""

import zlib

import numpy as np
import xxhash

from common.sizing import INT64_BYTES

# Three, because transports that alternate between two buffers would show a stale one as fresh.
POOL_SIZE = 3


def make_payload(sender: str, slot: int, payload_bytes: int) -> np.ndarray:
    """Random int64 of shape (payload_bytes / 8,), the same in every process that asks for it."""
    generator = np.random.Generator(np.random.SFC64([zlib.crc32(sender.encode()), slot]))
    limits = np.iinfo(np.int64)
    return generator.integers(limits.min, limits.max, payload_bytes // INT64_BYTES, np.int64, endpoint=True)


def digest(payload: np.ndarray) -> int:
    """XXH3-64 of everything behind the stamp."""
    return xxhash.xxh3_64_intdigest(payload[1:].data)


def count_wrong_bytes(payload: np.ndarray, trip: int, sender: str, expected_digest: int) -> int:
    """How many bytes of what arrived are not what `sender` sent on this trip; 0 means all is well."""
    if payload[0] == trip and digest(payload) == expected_digest:
        return 0
    expected = make_payload(sender, trip % POOL_SIZE, payload.nbytes)
    expected[0] = trip
    return int(np.count_nonzero(payload.view(np.uint8) != expected.view(np.uint8)))


def lies_in_shared_memory(address: int) -> bool:
    """Whether the address is in a mapping of a file under /dev/shm, by this process's own map."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, *_, path = line.split(maxsplit=5)
            start, end = (int(bound, 16) for bound in span.split("-"))
            if start <= address < end:
                return path.startswith("/dev/shm/")
    return False
