# SPDX-License-Identifier: Apache-2.0
"""Tell whether two messages have the same content, and whether a part of a message lies in memory that was received.

Only sums and addresses are kept, and no value.
"""

import functools
import sys
import weakref
import zlib
from pickle import PickleBuffer

from . import containers

MAX_LEAVES = 16  # the largest arrays of a message
MAX_LOOKED_AT = 2_000  # parts of a message
FEW_PARTS = 128  # of a message that are looked at if nothing else of it is described
SIMPLE = {str, bytes, int, float, bool, type(None)}
MAX_SAMPLED = 64  # buffers of a message with many of them
SAMPLED_WORDS = 512  # of 8 bytes, of a buffer
WORD_BYTES = 8
MIN_NUMPY_BYTES = 4_096  # of a buffer, below which zlib alone is faster
BLOCK = 1_024  # words that are added to one sum
MULTIPLIER = 0x9E3779B97F4A7C15  # of splitmix64, which spreads the bits of a number
MIN_LEAF_BYTES = 4_096
MAX_SUMMED = 4  # of the largest arrays of a message, whose bytes are compared with earlier ones
MAX_KNOWN = 1_000  # sums of parts that are remembered


def sample_sum(buffers):
    """Return a number that is equal for buffers whose number, lengths and sampled words are equal."""
    total = zlib.crc32(len(buffers).to_bytes(8, "little"))
    step = max(1, len(buffers) // MAX_SAMPLED)
    for buffer in buffers[::step]:
        view = view_of(buffer)
        total = zlib.crc32(len(view).to_bytes(8, "little"), total)
        total = zlib.crc32(sample(view), total)
    return total


def sample(view):
    """Return words at equal distances, and the end; a short buffer as it is.

    The distance is odd, so that it is no multiple of the length of the rows of most arrays.
    """
    if len(view) <= SAMPLED_WORDS * WORD_BYTES:
        return view
    end = len(view) // WORD_BYTES * WORD_BYTES
    words = view[:end].cast("Q")
    distance = len(words) // SAMPLED_WORDS | 1
    return words[::distance].tobytes() + view[-WORD_BYTES:]


def view_of(buffer):
    """Return the bytes of a buffer, which may be one that a pickle has left outside."""
    raw = buffer.raw() if isinstance(buffer, PickleBuffer) else buffer
    return memoryview(raw).cast("B")


def full_sum(buffers):
    """Return a number that differs if any byte of the buffers differs, but for a chance of about 1 in 2**32.

    Each word of a block is multiplied by another odd number, so it differs also if words change places, but for a
    chance of about 1 in 1,000 if both have zeros in most of their bits. numpy is several times as fast as zlib. Without
    numpy, and for buffers below MIN_NUMPY_BYTES, it is the sum of zlib, which is another number.
    """
    numpy = sys.modules.get("numpy")
    total = 0
    for buffer in buffers:
        view = view_of(buffer)
        whole = len(view) // WORD_BYTES * WORD_BYTES
        if numpy is not None and whole >= MIN_NUMPY_BYTES:
            words = numpy.frombuffer(view[:whole], numpy.uint64)
            in_blocks = len(words) // BLOCK * BLOCK
            blocks = words[:in_blocks].reshape(-1, BLOCK)
            sums = numpy.einsum("i,bi->b", weights_of_words(), blocks)
            for rest in (sums.tobytes(), words[in_blocks:].tobytes(), view[whole:]):
                total = zlib.crc32(rest, total)
        else:
            total = zlib.crc32(view, total)
    return total


@functools.cache
def weights_of_words():
    """Return an odd number for each word of a block, the same in all processes."""
    numpy = sys.modules["numpy"]
    numbers = numpy.arange(1, BLOCK + 1, dtype=numpy.uint64) * numpy.uint64(MULTIPLIER)
    mixed = (numbers ^ (numbers >> numpy.uint64(31))) * numpy.uint64(MULTIPLIER)
    return mixed | numpy.uint64(1)


class LiveObjects:
    """Give arrays and tensors numbers that are equal for the same object as long as it lives."""

    def __init__(self):
        self.numbers = {}
        self.last = 0

    def number_of(self, leaf):
        """Return the number of an object, a new one for an object that is not known; 0 if it has no weak references."""
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


class LargeParts:
    """The arrays and tensors among the first `most` parts of a message, the largest first."""

    def __init__(self, value, most=MAX_LOOKED_AT):
        found = []
        for part in arrays_of(value, most):
            leaf = locate(part) if part.nbytes >= MIN_LEAF_BYTES else None
            if leaf is not None:
                found.append((leaf, part))
        found.sort(key=lambda item: -item[0][1])
        self.leaves = [leaf for leaf, _ in found[:MAX_LEAVES]]  # address and bytes
        self.parts = [part for _, part in found[:MAX_SUMMED]]
        self.largest = self.parts[0] if self.parts else value


def find_leaves(value, most=MAX_LOOKED_AT):
    """Return [address, bytes] of the largest arrays and tensors among the first `most` parts of a message."""
    return LargeParts(value, most).leaves


def memory_of(part):
    """Return the bytes of an array or tensor as a buffer; None if they do not lie in one piece."""
    numpy = sys.modules.get("numpy")
    torch = sys.modules.get("torch")
    if numpy is not None and isinstance(part, numpy.ndarray):
        is_whole = part.flags.c_contiguous and not part.dtype.hasobject
        return memoryview(numpy.asarray(part).reshape(-1).view(numpy.uint8)) if is_whole else None
    if not part.is_contiguous():
        return None
    return memoryview(part.detach().reshape(-1).view(torch.uint8).numpy())


class KnownParts:
    """Arrays and tensors that were sent before, by sums of their bytes."""

    def __init__(self):
        self.sums = {}  # of samples -> of all bytes, or None

    def describe(self, parts, least_bytes, has_time):
        """Return [bytes, sum of samples, is the same] of the parts with at least so many bytes, and without gaps.

        The last says whether all bytes are those of the last part with these samples, in this message or an earlier
        one. It is None for a part that was not seen before, or not compared because there was no time.
        """
        described = []
        in_message = {}
        for part in parts:
            memory = memory_of(part) if part.nbytes >= least_bytes else None
            if memory is None:
                continue
            samples = sample_sum([memory])
            earlier = in_message.get(samples)
            is_same = self.is_same_as_last(memory, samples, earlier, has_time)
            described.append([memory.nbytes, samples, is_same])
            in_message[samples] = memory
        return described

    def is_same_as_last(self, memory, samples, earlier, has_time):
        """Return whether all bytes are those of the last part with these samples of which all bytes were summed.

        `samples` is the sum of its samples, and `earlier` the memory of a part of the same message that has it, too.
        Return None if nothing was compared: nothing with these samples was seen or summed before, or there is no time.
        """
        if samples not in self.sums:
            if len(self.sums) < MAX_KNOWN:
                self.sums[samples] = None
            return None
        if not has_time():
            return None
        last = self.sums[samples] if earlier is None else full_sum([earlier])
        whole = full_sum([memory])
        self.sums[samples] = whole
        return None if last is None else whole == last


def locate(part):
    """Return [address, bytes] of a numpy array or a torch tensor; None if it is not on the CPU in one piece."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(part, getattr(torch, "Tensor", ())):
        return [part.__array_interface__["data"][0], part.nbytes]
    if part.layout != torch.strided or part.device.type != "cpu" or part.is_nested:
        return None
    return [part.data_ptr(), part.nbytes]


def array_types():
    """Return the types of arrays and tensors of the libraries that the program has imported."""
    types = []
    for library, name in (("numpy", "ndarray"), ("torch", "Tensor")):
        kind = getattr(sys.modules.get(library), name, None)
        if kind is not None:
            types.append(kind)
    return tuple(types)


def arrays_of(value, most):
    """Yield the arrays and tensors of a message, each once, among the first `most` of its parts.

    Outer parts come before those inside of them. Numbers and strings count, too, because looking at them takes time.
    """
    types = array_types()
    left = most
    parts = [value]
    seen = {id(value)}
    for part in parts:  # which grows meanwhile
        if issubclass(type(part), types):
            yield part
            continue
        items = children(part, left)
        left -= len(items)
        for item in items:
            if type(item) not in SIMPLE and id(item) not in seen:
                seen.add(id(item))
                parts.append(item)


def children(part, most):
    """Return the first parts of a container, or of an object with attributes.

    Subclasses may have other ways to give their items, which are not asked.
    """
    if issubclass(type(part), containers.SEQUENCES):
        return containers.first_items(part, most)
    is_dict = issubclass(type(part), dict)
    items = part if is_dict else containers.attributes_of(part)
    return containers.take(dict.values, items, most)
