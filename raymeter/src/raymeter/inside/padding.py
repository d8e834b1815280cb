# SPDX-License-Identifier: Apache-2.0
"""Find how much of an array, a tensor or an Arrow field is one value, such as padding. The value is not kept."""

import sys

SAMPLED = 1_024  # values of a field that are looked at
# Of the length, from each of them to the next one, round and round. Any simple share of it meets few columns of rows.
GOLDEN = 0.6180339887498949
MIN_BYTES = 2**16  # of a field that is looked at
NUMBERS = "iuf"  # kinds of numpy's dtypes; half of a mask is always one value


def share_of_one_value(part):
    """Return the share of the most frequent value in a sample, from 0 to 1; 0 for what does not consist of numbers."""
    try:
        values = flat_values(part)
    except Exception:  # of a type that has no such array, or is on another device
        return 0.0
    numpy = sys.modules.get("numpy")
    if values is None or not len(values) or values.dtype.kind not in NUMBERS:
        return 0.0
    sample = take_sample(numpy, values)
    _, counts = numpy.unique(sample, return_counts=True)
    return float(counts.max()) / len(sample)


def take_sample(numpy, values):
    """Return SAMPLED values that are spread over all rows and columns, or all of them if they are fewer."""
    length = len(values)
    if length <= SAMPLED:
        return values
    places = numpy.arange(SAMPLED) * GOLDEN % 1.0
    positions = (places * length).astype(numpy.int64)
    return values[positions]


def flat_values(part):
    """Return the values of a contiguous array, tensor or Arrow field as one numpy array, without a copy; else None.

    Raise an error of the library for a tensor on another device, and for Arrow data that needs a copy, as with nulls.
    """
    numpy = sys.modules.get("numpy")
    torch = sys.modules.get("torch")
    pyarrow = sys.modules.get("pyarrow")
    if numpy is None:
        return None
    if torch is not None and isinstance(part, torch.Tensor):
        part = part.detach().numpy()
    if isinstance(part, numpy.ndarray):
        plain = numpy.asarray(part)
        return plain.reshape(-1) if plain.flags.c_contiguous else None
    return None if pyarrow is None else arrow_values(pyarrow, part)


def arrow_values(pyarrow, part):
    """Return the numbers in the largest chunk of the largest column; those of lists, too."""
    if isinstance(part, (pyarrow.Table, pyarrow.RecordBatch)):
        part = max(part.columns, key=lambda column: column.nbytes)
    if isinstance(part, pyarrow.ChunkedArray):
        part = max(part.chunks, key=len)
    if not isinstance(part, pyarrow.Array):
        return None
    while hasattr(part, "flatten"):  # lists
        part = part.flatten()
    numbers = part.to_numpy(zero_copy_only=True)
    return numbers.reshape(-1)  # of a column of tensors: all numbers of all rows
