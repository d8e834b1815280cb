# SPDX-License-Identifier: Apache-2.0
"""Make a message of another kind with the same content: arrays in the place of lists, tables in the place of rows.

Each conversion has limits. It raises what they raise: TooSlow, OutOfBudget, or RecursionError for a message that
contains itself.
"""

import functools
import sys
from collections import deque

from . import containers, describe, reading, special_arrays
from .limits import Limits

SIMPLE = {str, int, float, bool, type(None)}  # which stay as they are
MIN_ROWS = 256  # of a list or a dict that becomes columns
MANY_PARTS = 64  # arrays, chunks or columns that become one
VIEW_FACTOR = 1.2  # of the memory that a view looks at, and its own bytes
MIN_BYTES_OF_ARRAY = 2**16
WITH_CONTENT = (*containers.LISTED, dict, str, bytes, bytearray, int, float, complex)
CHUNK = 2**16  # numbers of rows that become an array together
MOST = 0.9  # of the bytes of an object that its arrays have, so that nothing else in it takes long to pickle


def replace_parts(value, replace_part, limits=None):
    """Return a copy of a message with other parts; the message itself if no part was replaced.

    `replace_part(part)` returns another part, or the same one. Containers and objects with attributes are copied.
    Objects whose class has its own way of pickling, or its own `__new__`, stay as they are. Raise what `limits` raise:
    TooSlow, OutOfBudget, or RecursionError for a message that contains itself.
    """
    if type(value) in SIMPLE:
        return value
    limits = limits or Limits()
    limits.check()
    other = replace_part(value)
    if other is not value:
        return other
    if has_only_simple(value):
        return value
    entered = limits.enter([value])
    changed = replace_inside(value, replace_part, limits)
    limits.leave(entered)
    return changed


def replace_inside(value, replace_part, limits):
    """Return a copy of a container or an object with other parts; itself if no part was replaced.

    Long lists of numbers, and objects that are more than their attributes, stay as they are.
    """
    if containers.is_mapping(value):
        changed = {key: replace_parts(item, replace_part, limits) for key, item in value.items()}
        is_changed = any(changed[key] is not item for key, item in value.items())
        return containers.with_values(value, changed) if is_changed else value
    if containers.is_sequence(value) and not describe.is_numbers(value):
        items = [replace_parts(item, replace_part, limits) for item in value]
        is_changed = any(new is not old for new, old in zip(items, value, strict=True))
        return containers.with_items(value, items) if is_changed else value
    if is_plain_object(value):
        return replace_attributes(value, replace_part, limits)
    return value


def has_only_simple(value):
    """Return whether all items of a container stay as they are, which takes much less time than to look at each."""
    if containers.is_mapping(value):
        return SIMPLE.issuperset(map(type, value.values()))
    return containers.is_sequence(value) and SIMPLE.issuperset(map(type, value))


def is_plain_object(value):
    """Return whether an object is no more than its attributes."""
    kind = type(value)
    return (
        isinstance(getattr(value, "__dict__", None), dict)
        and kind.__new__ is object.__new__
        and not isinstance(value, type)
        and not callable(value)
        and not describe.is_leaf(value)
        and reading.is_plain(kind)
        and describe.own_method(kind) is None
    )


def replace_attributes(value, replace_part, limits):
    """Return a copy of an object with other attributes; the object itself if none was replaced."""
    attributes = dict(vars(value))
    changed = replace_parts(attributes, replace_part, limits)
    if changed is attributes:
        return value
    copy = object.__new__(type(value))
    vars(copy).update(changed)
    return copy


def to_contiguous(value, limits=None):
    """Return the message with contiguous numpy arrays."""
    numpy = sys.modules.get("numpy")

    def convert(part):
        is_array = numpy is not None and isinstance(part, numpy.ndarray) and part.dtype != object
        if is_array and not (part.flags.c_contiguous or part.flags.f_contiguous):
            return numpy.ascontiguousarray(part)
        return part

    return replace_parts(value, convert, limits)


def tensors_to_arrays(value, limits=None):
    """Return the message with numpy arrays in the place of tensors on the CPU, which look at the same memory."""
    torch = sys.modules.get("torch")

    def convert(part):
        return tensor_to_array(torch, part) if is_strided_tensor(torch, part) else part

    return replace_parts(value, convert, limits)


def tensor_to_array(torch, tensor):
    """Return a numpy array that looks at the memory of a tensor on the CPU. One in bfloat16 becomes one of int16."""
    plain = tensor.detach()
    if plain.dtype == torch.bfloat16:
        plain = plain.contiguous().view(torch.int16)
    return plain.contiguous().numpy()


def is_strided_tensor(torch, part):
    """Return whether a part is a tensor that is neither sparse nor nested."""
    is_tensor = torch is not None and isinstance(part, torch.Tensor)
    return is_tensor and not special_arrays.form_of_tensor(torch, part)


def views_to_clones(value, limits=None):
    """Return the message with a copy of each tensor that looks at a part of a larger storage."""
    torch = sys.modules.get("torch")

    def convert(part):
        if not is_strided_tensor(torch, part):
            return part
        size = part.numel() * part.element_size()
        if part.untyped_storage().nbytes() <= VIEW_FACTOR * size:
            return part
        return part.detach().clone().requires_grad_(part.requires_grad)

    return replace_parts(value, convert, limits)


def numbers_to_arrays(value, limits=None):
    """Return the message with numpy arrays in the place of lists of numbers."""
    numpy = sys.modules.get("numpy")

    def convert(part):
        if numpy is not None and isinstance(part, (list, tuple)) and describe.is_numbers(part):
            return numpy.asarray(part)
        return part

    return replace_parts(value, convert, limits)


def bytes_to_arrays(value, limits=None):
    """Return the message with numpy arrays that look at the memory of bytes."""
    numpy = sys.modules.get("numpy")

    def convert(part):
        is_large = isinstance(part, (bytes, bytearray)) and len(part) >= MIN_BYTES_OF_ARRAY
        if numpy is not None and is_large:
            return numpy.frombuffer(part, numpy.uint8)
        return part

    return replace_parts(value, convert, limits)


def frames_to_arrow(value, limits=None):
    """Return the message with Arrow tables in the place of frames of pandas and polars.

    A Series of polars becomes an Arrow array, and one of pandas stays. Raise ImportError if there is a frame of pandas,
    and no pyarrow. Importing it takes none of the time that `limits` give.
    """
    pandas = sys.modules.get("pandas")
    polars = sys.modules.get("polars")
    limits = limits or Limits()

    def convert(part):
        if polars is not None and isinstance(part, (polars.DataFrame, polars.Series)):
            return part.to_arrow()
        if pandas is not None and isinstance(part, pandas.DataFrame):
            is_new = "pyarrow" not in sys.modules
            import pyarrow

            if is_new:
                limits.restart()
            return pyarrow.Table.from_pandas(part)
        return part

    return replace_parts(value, convert, limits)


def without_own_pickling(value, limits=None):
    """Return the message with attributes, as a dict, in the place of objects with their own way of pickling.

    An object that is an array for numpy, such as an image, becomes one.
    """
    numpy = sys.modules.get("numpy")

    def convert(part):
        if isinstance(part, type) or describe.is_leaf(part):
            return part
        if describe.own_method(type(part)) is None:
            return part
        if numpy is not None and hasattr(part, "__array_interface__"):
            return numpy.asarray(part)
        attributes = containers.attributes_of(part)
        if not attributes:
            return part
        changed = tensors_to_arrays(dict(attributes), limits)
        return {name: find_arrays(item, limits) for name, item in changed.items()}

    return replace_parts(value, convert, limits)


def to_their_arrays(value, limits=None):
    """Return the message with the arrays of subclasses, masked arrays, sparse and nested tensors, and images.

    They are made again when the message is read, but for images, and matrices of scipy, which stay in CSR format.
    """
    return replace_parts(value, special_arrays.to_arrays, limits)


def find_arrays(part, limits):
    """Return the arrays inside of a library's object, such as a TensorDict; the object itself if it has more.

    It has more if the arrays are less than MOST of its pickle. Containers, plain objects, classes, and arrays, tensors
    and tables themselves stay as they are.
    """
    is_plain = isinstance(part, (dict, list, tuple, deque)) or is_plain_object(part)
    if is_plain or describe.is_leaf(part) or isinstance(part, type):
        return part
    arrays = []
    size = 0
    for _, item in describe.walk(part):
        array = tensors_to_arrays(item, limits)
        if hasattr(array, "nbytes"):
            arrays.append(array)
            leaf = describe.describe_leaf(item)
            size += leaf["storage_bytes"] if leaf else array.nbytes
    return arrays if arrays and size >= MOST * pickled_bytes(part) else part


def pickled_bytes(part):
    """Return the bytes of a part in a pickle of Ray."""
    from ray import cloudpickle

    return len(cloudpickle.dumps(part, protocol=5))


def one_array(value, limits=None):
    """Return one flat array per dtype, by its name, in the place of a message with at least MANY_PARTS numpy arrays.

    The shapes and all other content are left out: the result is only measured. A message with fewer arrays is returned
    itself. Raise TooSlow or OutOfBudget if the time of `limits` is over.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return value
    limits = limits or Limits()
    arrays = []
    for _, part in describe.walk(value):
        limits.check()
        if isinstance(part, numpy.ndarray):
            arrays.append(part)
    if len(arrays) < MANY_PARTS:
        return value
    by_dtype = {}
    for array in arrays:
        by_dtype.setdefault(str(array.dtype), []).append(array.reshape(-1))
    return {name: numpy.concatenate(group) for name, group in by_dtype.items()}


def compact_tables(value, limits=None):
    """Return the message with Arrow data that holds its own rows only, in place of slices of larger data.

    A table stays, because Ray itself pickles only its rows, and so a record batch becomes a table.
    """
    pyarrow = sys.modules.get("pyarrow")

    def convert(part):
        if pyarrow is None or not isinstance(part, arrow_types(pyarrow)):
            return part
        if part.get_total_buffer_size() <= VIEW_FACTOR * part.nbytes:
            return part
        if isinstance(part, pyarrow.RecordBatch):
            return pyarrow.Table.from_batches([part])
        if isinstance(part, pyarrow.ChunkedArray):
            chunks = [pyarrow.concat_arrays([chunk]) for chunk in part.chunks]
            return pyarrow.chunked_array(chunks, part.type)
        return pyarrow.concat_arrays([part]) if isinstance(part, pyarrow.Array) else part

    return replace_parts(value, convert, limits)


def arrow_types(pyarrow):
    return (pyarrow.Table, pyarrow.RecordBatch, pyarrow.ChunkedArray, pyarrow.Array)


def combined_chunks(value, limits=None):
    """Return the message with one chunk in the place of many, for each column of its tables.

    Tables and chunked arrays with fewer than MANY_PARTS chunks, or fewer than two per column, stay as they are.
    """
    pyarrow = sys.modules.get("pyarrow")

    def convert(part):
        if pyarrow is None or not isinstance(part, (pyarrow.Table, pyarrow.ChunkedArray)):
            return part
        columns = part.columns if isinstance(part, pyarrow.Table) else [part]
        chunks = sum(column.num_chunks for column in columns)
        if chunks < MANY_PARTS or chunks < 2 * len(columns):
            return part
        return part.combine_chunks()

    return replace_parts(value, convert, limits)


def one_column(value, limits=None):
    """Return the message with one column for each type, in the place of the many columns of its tables.

    The values of all columns of a type, column after column, are cut into one list per row. The bytes are the same, but
    values are in other rows: the table is only measured. Tables with fewer than MANY_PARTS columns stay as they are.
    """
    pyarrow = sys.modules.get("pyarrow")

    def convert(part):
        is_table = pyarrow is not None and isinstance(part, (pyarrow.Table, pyarrow.RecordBatch))
        if not is_table or part.num_columns < MANY_PARTS:
            return part
        by_type = {}
        for column in part.columns:
            chunks = getattr(column, "chunks", [column])
            by_type.setdefault(str(column.type), []).extend(chunks)
        wide = {}
        for name, chunks in by_type.items():
            whole = pyarrow.concat_arrays(chunks)
            width = max(1, len(whole) // max(1, part.num_rows))
            wide[name] = pyarrow.FixedSizeListArray.from_arrays(whole, width)
        return pyarrow.table(wide)

    return replace_parts(value, convert, limits)


def columns(value, limits=None):
    """Return the message with a column for each field in the place of many rows, and arrays in place of strings.

    Rows are dicts with the same keys, tuples of one length, objects of one class, or lists, arrays or tensors of
    numbers, of any length. Anything else stays as it is.
    """
    limits = limits or Limits()
    convert = functools.partial(to_columns, limits=limits)
    return replace_parts(value, convert, limits)


def to_columns(part, limits):
    """Return the columns of at least MIN_ROWS rows (in a container or an array of objects), and of any DataFrame.

    Anything else is returned as it is, and so is all if the program has not imported numpy.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return part
    if isinstance(part, numpy.ndarray):
        is_flat = part.dtype == object and part.ndim == 1 and len(part) >= MIN_ROWS
        return make_column(part.tolist(), part, limits) if is_flat else part
    if is_pandas(part, "Series"):
        return to_columns(part.to_numpy(), limits) if part.dtype == object else part
    if is_pandas(part, "DataFrame"):
        return {str(name): to_columns(part[name].to_numpy(), limits) for name in part.columns}
    is_mapping = containers.is_mapping(part) and not containers.has_attributes(part)
    is_container = is_mapping or containers.is_sequence(part) or isinstance(part, (set, frozenset))
    if not is_container or len(part) < MIN_ROWS:
        return part
    if is_mapping:
        return dict_to_columns(part, limits)
    entered = limits.enter([part])
    column = make_column(list(part), part, limits)
    limits.leave(entered)
    return column


def is_pandas(part, name):
    """Return whether a part is of this class of pandas, if the program has imported it."""
    kind = getattr(sys.modules.get("pandas"), name, None)
    return kind is not None and isinstance(part, kind)


def dict_to_columns(part, limits):
    """Return a column of the keys and one of the values; the dict itself if its values are no rows."""
    keys = list(part)
    values = list(part.values())
    entered = limits.enter([part])
    key_column = make_column(keys, keys, limits)
    value_column = make_column(values, values, limits)
    limits.leave(entered)
    if key_column is keys or value_column is values:
        return part
    return {"keys": key_column, "values": value_column}


def make_column(items, default, limits):
    """Return numbers and strings as one array, and rows as a dict of columns; `default` for anything else.

    `items` is not empty. In such a dict, what cannot become an array stays a list. Raise what `limits` raise.
    """
    limits.check()
    kind = type(items[0])
    if set(map(type, items)) != {kind}:
        return default
    if kind is str:
        return string_column(items)
    if kind in describe.NUMBERS:
        return sys.modules["numpy"].asarray(items)
    if kind is list and are_numbers(items, limits):
        return flat_column(items, limits)
    arrays = small_arrays(kind, items, limits)
    if arrays:
        return joined_column(arrays, limits)
    entered = limits.enter(items)
    fields = split_rows(kind, items, limits)
    made = {name: make_column(values, values, limits) for name, values in fields}
    limits.leave(entered)
    return made or default


def are_numbers(rows, limits):
    """Return whether rows hold numbers only, and at least one."""
    kinds = set()
    for row in rows:
        limits.check()
        kinds.update(map(type, row))
        if not kinds.issubset(describe.NUMBERS):
            return False
    return bool(kinds)


def flat_column(rows, limits):
    """Return the numbers of rows of any length as one array, and another one of the lengths.

    Rows are lists, and at least one of them has a number. They become arrays in parts, so that `limits` are checked.
    """
    numpy = sys.modules["numpy"]
    lengths = numpy.fromiter(map(len, rows), numpy.int64, len(rows))
    arrays = []
    waiting = []
    for row in rows:
        waiting += row
        if len(waiting) >= CHUNK:
            limits.check()
            arrays.append(numpy.asarray(waiting))
            waiting = []
    if waiting:
        arrays.append(numpy.asarray(waiting))
    return {"numbers": numpy.concatenate(arrays), "lengths": lengths}


def small_arrays(kind, rows, limits):
    """Return the rows, all of type `kind`, as numpy arrays; [] if they are no small arrays of numbers of one dtype.

    Tensors of torch on the CPU become arrays. Small: less than MIN_BYTES_OF_ARRAY on average.
    """
    numpy = sys.modules["numpy"]
    torch = sys.modules.get("torch")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        limits.check()
        if not all(row.device.type == "cpu" and is_strided_tensor(torch, row) for row in rows):
            return []
        rows = [tensor_to_array(torch, row) for row in rows]
    elif kind is not numpy.ndarray:
        return []
    limits.check()
    size = sum(row.nbytes for row in rows)
    is_small = size < MIN_BYTES_OF_ARRAY * len(rows)
    dtypes = {row.dtype for row in rows}
    is_of_numbers = len(dtypes) == 1 and not rows[0].dtype.hasobject
    return rows if is_small and is_of_numbers else []


def joined_column(arrays, limits):
    """Return small arrays as one, and another one of their sizes."""
    numpy = sys.modules["numpy"]
    limits.check()
    sizes = numpy.fromiter((array.size for array in arrays), numpy.int64, len(arrays))
    return {"numbers": numpy.concatenate([array.reshape(-1) for array in arrays]), "sizes": sizes}


def string_column(items):
    """Return strings as an array: of Arrow if the program has it, else of numpy."""
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow.array(items) if pyarrow is not None else sys.modules["numpy"].array(items)


def split_rows(kind, rows, limits):
    """Return name or position and values of each field of rows of one type; [] if they are no rows of a table."""
    if kind in (tuple, list) or all(map(containers.is_named_tuple, rows)):
        is_table = set(map(len, rows)) == {len(rows[0])}
        return enumerate(map(list, zip(*rows, strict=True))) if is_table else []
    dicts = rows if kind is dict else attributes_of_rows(rows)
    names = list(dicts[0]) if dicts else []
    for row in dicts:
        limits.check()
        if list(row) != names:
            return []
    return ((name, [row[name] for row in dicts]) for name in names)


def attributes_of_rows(rows):
    """Return the attributes of each object, all of one class; [] if one has none, or they have more than attributes."""
    first = rows[0]
    if callable(first) or describe.is_leaf(first) or describe.is_of(first, WITH_CONTENT):
        return []
    dicts = [containers.attributes_of(row) for row in rows]
    return dicts if all(dicts) else []


CONVERSIONS = {
    "contiguous arrays": to_contiguous,
    "numpy arrays": tensors_to_arrays,
    "clones of views": views_to_clones,
    "own rows": compact_tables,
    "one chunk": combined_chunks,
    "one column": one_column,
    "arrays of numbers": numbers_to_arrays,
    "arrays of bytes": bytes_to_arrays,
    "Arrow tables": frames_to_arrow,
    "without its own pickling": without_own_pickling,
    "its arrays": to_their_arrays,
    "one array": one_array,
    "columns": columns,
}
