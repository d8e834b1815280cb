"""The bytes that travel, and the check that they arrived: numpy alone, no Ray, no torch.

Every trip's payload differs. A sender owns POOL_SIZE distinct random payloads, sends number
`trip % POOL_SIZE` and stamps the trip's number into its first eight bytes (or as many as there are). A
reader compares the stamp and a 64-bit hash of everything else; only when one differs is the expected
payload made again, and the wrong bytes counted one by one.
"""

import zlib

import numpy as np
import xxhash

from common.flow.demo_sizes import INT64_BYTES

# Three, because transports that alternate between two buffers would show a stale one as fresh.
POOL_SIZE = 3


def make_payload(sender: str, slot: int, payload_bytes: int) -> np.ndarray:
    """Random and the same in every process that asks for it: int64 (bytes / 8,), else uint8 (bytes,)."""
    generator = np.random.Generator(np.random.SFC64([zlib.crc32(sender.encode()), slot]))
    dtype = np.uint8 if payload_bytes % INT64_BYTES else np.int64
    limits = np.iinfo(dtype)
    count = payload_bytes // np.dtype(dtype).itemsize
    return generator.integers(limits.min, limits.max, count, dtype, endpoint=True)


def stamp_bytes(payload_bytes: int) -> int:
    """How many bytes the stamp has in a payload of this size."""
    return min(INT64_BYTES, payload_bytes)


def stamp(trip: int, payload_bytes: int) -> int:
    """What the stamp says on this trip: its number, or as much of it as fits."""
    return trip % 256 ** stamp_bytes(payload_bytes)


def write_stamp(payload: np.ndarray, trip: int) -> None:
    """Write the trip's number, little endian. (A torch tensor will do as well.)"""
    if payload.itemsize == INT64_BYTES:
        payload[0] = trip
    else:
        for index in range(stamp_bytes(payload.nbytes)):
            payload[index] = trip >> 8 * index & 255


def digest(payload: np.ndarray) -> int:
    """XXH3-64 of everything behind the stamp."""
    return xxhash.xxh3_64_intdigest(payload.view(np.uint8)[stamp_bytes(payload.nbytes) :].data)


def count_wrong_bytes(payload: np.ndarray, trip: int, sender: str, expected_digest: int) -> int:
    """How many bytes of what arrived are not what `sender` sent on this trip; 0 means all is well."""
    found = payload.view(np.uint8)
    prefix = bytes(found[: stamp_bytes(payload.nbytes)])
    if int.from_bytes(prefix, "little") == stamp(trip, payload.nbytes) and digest(payload) == expected_digest:
        return 0
    expected = make_payload(sender, trip % POOL_SIZE, payload.nbytes)
    write_stamp(expected, trip)
    return int(np.count_nonzero(found != expected.view(np.uint8)))


def lies_in_shared_memory(address: int) -> bool:
    """Whether the address is in a mapping of a file under /dev/shm, by this process's own map."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, *_, path = line.split(maxsplit=5)
            start, end = (int(bound, 16) for bound in span.split("-"))
            if start <= address < end:
                return path.startswith("/dev/shm/")
    return False
