# SPDX-License-Identifier: Apache-2.0
"""Describe what a message consists of: types, names, shapes and bytes of its fields, and no values."""

import sys

from . import by_class, containers, padding, ray_internals, special_arrays

MAX_PARTS = 2_000  # of a message that are looked at; others are like them, or are left out
MAX_FIELDS = 32
MAX_PADDED = 4  # fields that are searched for padding, the largest ones
MAX_NAME_LENGTH = 64
MAX_NAMES = 64  # of keys in a dict; more are probably data, and no names
NUMBERS = (int, float, bool)
MIN_NUMBERS = 1_000  # in a list of numbers that is called one
PICKLE_START = b"\x80"  # the code that a protocol follows
PICKLE_PROTOCOLS = (b"\x02", b"\x03", b"\x04", b"\x05")
PICKLE_END = b"."
ZIP_START = b"PK\x03\x04"
TORCH_ENTRY = b"/data.pkl"  # the name of the first file in what torch.save makes
MAX_HEADER_BYTES = 128  # in which the name of this file is looked for

own_methods = (
    by_class.ByClass()
)  # name and line of the function with which a class is pickled, or None


def describe(value):
    """Return the fields of a message, those with most bytes first.

    A field is a tensor, an array, a table, text, bytes, or numbers in a list, by its path in the message. Parts of a
    list have one path together. At most MAX_FIELDS are returned. If a message has MAX_PARTS parts or more, fields have
    "is_part": not all parts were looked at. Of the largest fields, "one_value" is the share of one value in a sample.
    """
    fields = {}
    examples = {}
    looks = 0
    for path, part in walk(value):
        looks += 1
        leaf = describe_leaf(part)
        if leaf is None:
            continue
        key = (path, leaf["type"], leaf["dtype"])
        field = fields.get(key)
        if field is None:
            fields[key] = {"path": path, "count": 1, **leaf}
            examples[key] = part
            continue
        field["count"] += 1
        field["bytes"] += leaf["bytes"]
        field["storage_bytes"] += leaf["storage_bytes"]
        field["is_contiguous"] = field["is_contiguous"] and leaf["is_contiguous"]
    ordered = sorted(fields, key=lambda key: -stored_bytes(fields[key]))
    for key in ordered[:MAX_PADDED]:
        if fields[key]["bytes"] >= padding.MIN_BYTES:
            fields[key]["one_value"] = padding.share_of_one_value(examples[key])
    largest = [fields[key] for key in ordered[:MAX_FIELDS]]
    if looks >= MAX_PARTS:
        for field in largest:
            field["is_part"] = True
    return largest


def stored_bytes(field):
    """Return the bytes of a field, with the memory that a view brings."""
    return max(field["bytes"], field["storage_bytes"])


def walk(value):
    """Yield path and value of the parts of a message, at most MAX_PARTS, each once."""
    waiting = [("", value)]
    seen = set()
    while waiting and len(seen) < MAX_PARTS:
        path, part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield path, part
        waiting.extend(named_children(path, part))


def named_children(path, part):
    """Return the parts of a container, or of an object with attributes, with their paths.

    Subclasses may have other ways to give their items, which are not asked. Return [] for what has no parts to look at:
    texts, long lists of numbers, arrays, tables, classes, and what can be called.
    """
    if is_of(part, containers.LISTED):
        if is_numbers(part):
            return []
        return [(f"{path}[]", item) for item in containers.first_items(part, MAX_PARTS)]
    if is_of(part, (str, bytes, bytearray, type)) or callable(part) or is_leaf(part):
        return []
    items = part if is_of(part, dict) else containers.attributes_of(part)
    count = dict.__len__(items)
    children = []
    for key, item in containers.first_pairs(items, MAX_PARTS):
        name = key if is_name(key, count) else "*"
        children.append((f"{path}.{name}".lstrip("."), item))
    return children


def is_name(key, keys):
    """Return whether a key of a dict with so many keys is a name of the code, and no data of the user."""
    looks_like_one = keys <= MAX_NAMES and type(key) is str and len(key) <= MAX_NAME_LENGTH
    return looks_like_one and key.replace(".", "_").isidentifier() and is_in_code(key)


def is_in_code(text):
    """Return whether a text is a name or a constant in code that this process has loaded: Python keeps one of each.

    A text that was made while the program runs, such as a user's name that was read from a file, is none.
    """
    copy = "".join(list(text))
    return sys.intern(copy) is not copy


def is_leaf(part):
    return describe_library_leaf(part) is not None


def describe_leaf(part):
    """Return what a part is, and its bytes: bytes, text, a long list of numbers, or what a library has; else None."""
    for base in (bytes, bytearray, str):
        if is_of(part, base):
            kind = "str" if base is str else "bytes"
            length = base.__len__(part)
            leaf = make_leaf(kind, kind, [length], length)
            if base is not str:
                leaf["form"] = form_of_bytes(base, part)
            return leaf
    if is_numbers(part):
        base = list if is_of(part, list) else tuple
        dtype = "float" if type(base.__getitem__(part, 0)) is float else "int"
        length = base.__len__(part)
        return make_leaf(type(part).__name__, dtype, [length], 8 * length)
    return describe_library_leaf(part)


def form_of_bytes(base, part):
    """Return "pickle" or "torch.save" if bytes begin and end like what these make; "" for other bytes.

    base: bytes or bytearray, whose methods are used. The bytes are not loaded, which could run any code.
    """
    start = base.__getitem__(part, slice(MAX_HEADER_BYTES))
    end = base.__getitem__(part, slice(-1, None))
    if start[:1] == PICKLE_START and start[1:2] in PICKLE_PROTOCOLS and end == PICKLE_END:
        return "pickle"
    if start.startswith(ZIP_START) and TORCH_ENTRY in start:
        return "torch.save"
    return ""


def is_numbers(part):
    """Return whether a part is a list or tuple of numbers only, judged by its ends and its middle."""
    if not is_of(part, (list, tuple)):
        return False
    base = list if is_of(part, list) else tuple
    length = base.__len__(part)
    if length < MIN_NUMBERS:
        return False
    places = (0, length // 2, length - 1)
    return all(type(base.__getitem__(part, place)) in NUMBERS for place in places)


def is_of(part, kinds):
    """Return whether a part is of a class, or of one of several. `isinstance` would ask the part, too."""
    return issubclass(type(part), kinds)


def describe_library_leaf(part):
    """Return what an array, tensor, table, sparse matrix or image of one of LIBRARIES is; None for anything else.

    Only libraries that the program has imported are asked. One that raises an error does not know the part.
    """
    for library, describe_part in LIBRARIES.items():
        module = sys.modules.get(library)
        if module is None:
            continue
        try:
            leaf = describe_part(module, part)
        except Exception:  # a module that is being imported, or another version
            leaf = None
        if leaf is not None:
            return leaf
    return None


def describe_array(numpy, part):
    """Return what an array is; None if the part is none."""
    if not is_of(part, numpy.ndarray):
        return None
    size = special_arrays.array_bytes(numpy, part)
    leaf = make_leaf(type_name(part), str(part.dtype)[:40], list(part.shape), size)
    leaf["form"] = special_arrays.form_of_array(numpy, part)
    leaf["is_contiguous"] = bool(part.flags.c_contiguous or part.flags.f_contiguous)
    return leaf


def describe_tensor(torch, part):
    """Return what a tensor is; None if the part is none.

    Of a sparse or nested one, it has the form, and not the device. On a device other than the CPU, "storage_bytes"
    are its own bytes.
    """
    if not is_of(part, torch.Tensor):
        return None
    dtype = str(part.dtype).replace("torch.", "")
    form = special_arrays.form_of_tensor(torch, part)
    if form:
        shape = [] if part.is_nested else list(part.shape)
        size = special_arrays.tensor_bytes(torch, part)
        leaf = make_leaf(type_name(part), dtype, shape, size)
        leaf["form"] = form
        leaf["storage_bytes"] = max(size, special_arrays.storage_bytes(torch, part))
        return leaf
    size = part.numel() * part.element_size()
    leaf = make_leaf(type_name(part), dtype, list(part.shape), size)
    leaf["is_contiguous"] = bool(part.is_contiguous())
    if part.device.type == "cpu":
        leaf["storage_bytes"] = part.untyped_storage().nbytes()
    leaf["device"] = str(part.device)
    leaf["requires_grad"] = bool(part.requires_grad)
    return leaf


def describe_arrow(pyarrow, part):
    """Return what a table, a record batch, or an array in one or more chunks is; None if the part is none of these.

    "storage_bytes" are more than its bytes if it is a slice of larger data.
    """
    kinds = (pyarrow.Table, pyarrow.RecordBatch, pyarrow.ChunkedArray, pyarrow.Array)
    if not is_of(part, kinds):
        return None
    leaf = make_leaf(type_name(part), "arrow", [len(part)], part.nbytes)
    leaf["storage_bytes"] = max(part.nbytes, part.get_total_buffer_size())
    if is_of(part, (pyarrow.Table, pyarrow.RecordBatch)):
        leaf["columns"] = part.num_columns
        leaf["shape"] = [part.num_rows, part.num_columns]
    if is_of(part, pyarrow.Table):
        leaf["chunks"] = sum(column.num_chunks for column in part.columns)
    elif is_of(part, pyarrow.ChunkedArray):
        leaf["chunks"] = part.num_chunks
    return leaf


def describe_pandas(pandas, part):
    if not is_of(part, (pandas.DataFrame, pandas.Series)):
        return None
    memory = part.memory_usage(index=True)
    size = int(memory if is_of(part, pandas.Series) else memory.sum())
    leaf = make_leaf(type_name(part), "frame", list(part.shape), size)
    types = [part.dtype] if is_of(part, pandas.Series) else list(part.dtypes)
    leaf["columns"] = len(types)
    leaf["object_columns"] = sum(1 for dtype in types if str(dtype) in ("object", "str", "string"))
    return leaf


def describe_polars(polars, part):
    if not is_of(part, (polars.DataFrame, polars.Series)):
        return None
    return make_leaf(type_name(part), "frame", list(part.shape), part.estimated_size())


def describe_matrix(sparse, part):
    if not special_arrays.is_lists_of_scipy(sparse, part):
        return None
    size = special_arrays.matrix_bytes(part)
    leaf = make_leaf(type_name(part), str(part.dtype), list(part.shape), size)
    leaf["form"] = part.format
    return leaf


def describe_image(image_module, part):
    if not is_of(part, image_module.Image):
        return None
    width, height = part.size
    size = special_arrays.image_bytes(part)
    leaf = make_leaf(type_name(part), part.mode, [height, width], size)
    leaf["form"] = "image"
    return leaf


LIBRARIES = {
    "numpy": describe_array,
    "torch": describe_tensor,
    "pyarrow": describe_arrow,
    "pandas": describe_pandas,
    "polars": describe_polars,
    "scipy.sparse": describe_matrix,
    "PIL.Image": describe_image,
}


def make_leaf(kind, dtype, shape, size):
    """Return a leaf of `size` bytes. `storage_bytes` differs for a view: the bytes of the memory that it looks at."""
    return {
        "type": kind,
        "dtype": dtype,
        "shape": shape,
        "bytes": size,
        "storage_bytes": size,
        "is_contiguous": True,
    }


def type_name(value):
    """Return the name of a type as its users know it, such as torch.Tensor or pandas.DataFrame."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{package}.{kind.__qualname__}"


def find_own_pickling(value):
    """Return class, path, file:line and method of the class in a message that says itself how it is pickled.

    If there are several, the one with most bytes in it counts; None without one. Only functions in Python count, of the
    user or of a library, and reducers that the program has registered.
    """
    found = None
    most = -1
    types = set()
    for path, part in walk(value):
        if is_of(part, type) or type(part) in types or is_leaf(part):
            continue
        types.add(type(part))
        own = own_method(type(part))
        if own is None:
            continue
        size = bytes_below(part)
        if size > most:
            most = size
            method, line = own
            found = {"class": type_name(part), "path": path, "line": line, "method": method}
    return found


def own_method(kind):
    """Return name and file:line of the function with which a class is pickled; None if that is not its own."""
    if kind not in own_methods:
        own_methods.set(kind, find_own_method(kind))
    return own_methods.get(kind)


def find_own_method(kind):
    """Return what `own_method` does, for a class that is not known yet."""
    registered = ray_internals.registered_reducer(kind)
    if registered is not None:
        return "a registered serializer", code_line(registered)
    for name in ("__getstate__", "__reduce__", "__reduce_ex__"):
        code = getattr(getattr(kind, name, None), "__code__", None)
        if code is not None:
            return name, f"{code.co_filename}:{code.co_firstlineno}"
    return None


def code_line(function):
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def bytes_below(part):
    """Return the bytes of the arrays, texts and numbers in a part."""
    leaves = [describe_leaf(item) for _, item in walk(part)]
    return sum(leaf["bytes"] for leaf in leaves if leaf is not None)
