"""Serialise a message in other ways that fit it, to know on this machine what each would save.

The results are dropped. A message is measured once per kind, by its sender, with Ray's own pickler.
"""

import sys
import time

from . import describe

MAX_BYTES = 512 * 2**20  # of a message; larger ones are not measured
PASSES = 2  # the faster one counts


def dumps(value):
    """Return the pickle of a value and its buffers, as Ray makes them."""
    from ray import cloudpickle

    buffers = []
    inband = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return inband, buffers


def loads(inband, buffers):
    from ray import cloudpickle

    return cloudpickle.loads(inband, buffers=buffers)


def pickled_bytes(value):
    """Return the bytes of a value's pickle with its buffers; 0 if it cannot be pickled."""
    try:
        inband, buffers = dumps(value)
    except Exception:
        return 0
    return len(inband) + sum(buffer.raw().nbytes for buffer in buffers)


def measure(value, event):
    """Return what serialising and reading a message takes as it is, and in each other way that fits.

    Each is {"serialise": seconds, "deserialise": seconds, "bytes": all, "inband_bytes": in the pickle}, with the time
    of the conversion as "convert", which the program would often spend once instead of for each message.
    """
    if event["bytes"] > MAX_BYTES:
        return {}
    results = {"as it is": measure_value(value, 0.0)}
    for name, convert in CONVERSIONS.items():
        begin = time.perf_counter()
        try:
            converted = convert(value)
        except Exception:
            continue
        seconds = time.perf_counter() - begin
        if converted is not value and converted is not None:
            results[name] = measure_value(converted, seconds)
    return results


def measure_value(value, convert_seconds):
    """Return the fastest of PASSES; an empty dict if it cannot be pickled."""
    best = {}
    for _ in range(PASSES):
        begin = time.perf_counter()
        try:
            inband, buffers = dumps(value)
            middle = time.perf_counter()
            loads(inband, buffers)
        except Exception:
            return {}
        end = time.perf_counter()
        size = sum(buffer.raw().nbytes for buffer in buffers)
        measured = {
            "convert": convert_seconds,
            "serialise": middle - begin,
            "deserialise": end - middle,
            "bytes": size + len(inband),
            "inband_bytes": len(inband),
            "buffers": len(buffers),
        }
        if not best or middle - begin < best["serialise"]:
            best = measured
    return best


def replace_parts(value, replace_part):
    """Return a copy of dicts and lists with other parts; the value itself if no part was replaced."""
    other = replace_part(value)
    if other is not value:
        return other
    if isinstance(value, dict) and type(value) is dict:
        changed = {key: replace_parts(item, replace_part) for key, item in value.items()}
        is_changed = any(changed[key] is not value[key] for key in value)
        return changed if is_changed else value
    if type(value) in (list, tuple) and not describe.is_numbers(value):
        items = [replace_parts(item, replace_part) for item in value]
        is_changed = any(new is not old for new, old in zip(items, value, strict=True))
        return type(value)(items) if is_changed else value
    return value


def to_contiguous(value):
    """Return the message with contiguous numpy arrays."""
    numpy = sys.modules.get("numpy")

    def convert(part):
        is_array = numpy is not None and isinstance(part, numpy.ndarray) and part.dtype != object
        if is_array and not (part.flags.c_contiguous or part.flags.f_contiguous):
            return numpy.ascontiguousarray(part)
        return part

    return replace_parts(value, convert)


def tensors_to_arrays(value):
    """Return the message with numpy arrays in the place of tensors on the CPU, which look at the same memory."""
    torch = sys.modules.get("torch")

    def convert(part):
        if torch is None or not isinstance(part, torch.Tensor):
            return part
        plain = part.detach()
        if plain.dtype == torch.bfloat16:
            plain = plain.contiguous().view(torch.int16)
        return plain.contiguous().numpy()

    return replace_parts(value, convert)


def views_to_clones(value):
    """Return the message with a copy of each tensor that looks at a part of a larger storage."""
    torch = sys.modules.get("torch")

    def convert(part):
        if torch is None or not isinstance(part, torch.Tensor):
            return part
        size = part.numel() * part.element_size()
        return part.clone() if part.untyped_storage().nbytes() > 1.2 * size else part

    return replace_parts(value, convert)


def numbers_to_arrays(value):
    """Return the message with numpy arrays in the place of lists of numbers."""
    numpy = sys.modules.get("numpy")

    def convert(part):
        if numpy is not None and isinstance(part, (list, tuple)) and describe.is_numbers(part):
            return numpy.asarray(part)
        return part

    return replace_parts(value, convert)


def bytes_to_arrays(value):
    """Return the message with numpy arrays that look at the memory of bytes."""
    numpy = sys.modules.get("numpy")

    def convert(part):
        is_large = isinstance(part, (bytes, bytearray)) and len(part) >= 2**16
        if numpy is not None and is_large:
            return numpy.frombuffer(part, numpy.uint8)
        return part

    return replace_parts(value, convert)


def frames_to_arrow(value):
    """Return the message with Arrow tables in the place of frames of pandas and polars."""
    pandas = sys.modules.get("pandas")
    polars = sys.modules.get("polars")

    def convert(part):
        if polars is not None and isinstance(part, (polars.DataFrame, polars.Series)):
            return part.to_arrow()
        if pandas is not None and isinstance(part, pandas.DataFrame):
            import pyarrow

            return pyarrow.Table.from_pandas(part)
        return part

    return replace_parts(value, convert)


def without_own_pickling(value):
    """Return the attributes of an object whose class has its own way of pickling, as a dict."""
    found = describe.find_own_pickling(value)
    if found is None or found["path"]:
        return value
    return tensors_to_arrays(dict(vars(value)))


def one_array(value):
    """Return many arrays of one dtype as one."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return value
    arrays = [part for _, part in describe.walk(value) if isinstance(part, numpy.ndarray)]
    if len(arrays) < 64:
        return value
    by_dtype = {}
    for array in arrays:
        by_dtype.setdefault(str(array.dtype), []).append(array.reshape(-1))
    return {name: numpy.concatenate(group) for name, group in by_dtype.items()}


CONVERSIONS = {
    "contiguous arrays": to_contiguous,
    "numpy arrays": tensors_to_arrays,
    "clones of views": views_to_clones,
    "arrays of numbers": numbers_to_arrays,
    "arrays of bytes": bytes_to_arrays,
    "Arrow tables": frames_to_arrow,
    "without its own pickling": without_own_pickling,
    "one array": one_array,
}
