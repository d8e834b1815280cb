"""Tell whether two messages have the same content, and whether a part of a message lies in memory that was received.

Only sums and addresses are kept, and no value.
"""

import sys
import weakref
import zlib

MAX_LEAVES = 16  # the largest arrays of a message
MAX_WALKED = 2_000  # parts of a message that are looked at
PIECES = 64  # of a buffer that are sampled
PIECE_BYTES = 64
COLUMNS = 64  # sums of words, which a change of one word changes
MIN_LEAF_BYTES = 4_096


def sample_sum(buffers):
    """Return a number that is equal for buffers whose lengths and sampled pieces are equal."""
    total = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        total = zlib.crc32(len(view).to_bytes(8, "little"), total)
        if len(view) <= PIECES * PIECE_BYTES:
            total = zlib.crc32(view, total)
            continue
        step = (len(view) - PIECE_BYTES) // (PIECES - 1)
        for begin in range(0, len(view) - PIECE_BYTES + 1, step):
            total = zlib.crc32(view[begin : begin + PIECE_BYTES], total)
    return total


def full_sum(buffers):
    """Return a number that differs if any byte of the buffers differs, but for a chance of about 1 in 2**32.

    numpy adds 8 bytes at a time, and is several times as fast as zlib.
    """
    numpy = sys.modules.get("numpy")
    total = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        whole = len(view) // 8 * 8
        if numpy is not None and whole:
            words = numpy.frombuffer(view[:whole], numpy.uint64)
            in_rows = len(words) // COLUMNS * COLUMNS
            rows = words[:in_rows].reshape(-1, COLUMNS)
            columns = rows.sum(axis=0, dtype=numpy.uint64)
            for rest in (columns.tobytes(), words[in_rows:].tobytes(), view[whole:]):
                total = zlib.crc32(rest, total)
        else:
            total = zlib.crc32(view, total)
    return total


class LiveObjects:
    """Give arrays and tensors numbers that are equal for the same object as long as it lives."""

    def __init__(self):
        self.numbers = {}
        self.last = 0

    def number_of(self, leaf):
        """Return the number of an object; 0 if it cannot be referred to weakly."""
        key = id(leaf)
        known = self.numbers.get(key)
        if known is not None:
            return known[0]
        try:
            reference = weakref.ref(leaf, lambda _: self.numbers.pop(key, None))
        except TypeError:
            return 0
        self.last += 1
        self.numbers[key] = (self.last, reference)
        return self.last


def largest_part(value):
    """Return the array or tensor of a message with most bytes, or the message itself without one."""
    largest = value
    most = 0
    for part in walk(value):
        leaf = locate(part)
        if leaf is not None and leaf[1] > most:
            largest = part
            most = leaf[1]
    return largest


def find_leaves(value):
    """Return [address, bytes] of the largest arrays and tensors of a message, the largest first."""
    leaves = []
    for part in walk(value):
        leaf = locate(part)
        if leaf is not None and leaf[1] >= MIN_LEAF_BYTES:
            leaves.append(leaf)
    leaves.sort(key=lambda leaf: -leaf[1])
    return leaves[:MAX_LEAVES]


def locate(part):
    """Return [address, bytes] of a numpy array or a torch tensor on the CPU; None for anything else."""
    numpy = sys.modules.get("numpy")
    torch = sys.modules.get("torch")
    if numpy is not None and isinstance(part, numpy.ndarray):
        return [part.__array_interface__["data"][0], part.nbytes]
    if torch is None or not isinstance(part, getattr(torch, "Tensor", ())):
        return None
    if part.layout != torch.strided or part.device.type != "cpu" or part.is_nested:
        return None
    return [part.data_ptr(), part.numel() * part.element_size()]


def walk(value):
    """Yield the parts of a message, at most MAX_WALKED of them, each once."""
    waiting = [value]
    seen = set()
    while waiting and len(seen) < MAX_WALKED:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        waiting.extend(children(part))


def children(part):
    """Return the parts of a container or of an object with attributes."""
    if isinstance(part, dict):
        return list(part.values())[:MAX_WALKED]
    if isinstance(part, (list, tuple)):
        return part[:MAX_WALKED]
    if isinstance(part, (str, bytes, int, float, type(None))) or locate(part) is not None:
        return ()
    attributes = getattr(part, "__dict__", None)
    return list(attributes.values())[:MAX_WALKED] if isinstance(attributes, dict) else ()
