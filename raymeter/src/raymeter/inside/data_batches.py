# SPDX-License-Identifier: Apache-2.0
"""Find lists of numbers in the batches of which Ray Data makes blocks, and measure what arrays would take.

A function of `map_batches` may return lists, as of `tolist()`. Ray Data looks at each of their numbers then, in the
task, where no message shows it. Other processes than its workers are left as they are, and import nothing of it.
"""

import contextlib
import functools
import sys
import time
import types

from . import containers, describe, place, ray_internals

MIN_SECONDS = 0.001  # of making a block, below which it is not looked at
MEASURED_BATCH = 2  # of a function, in a process: before it, libraries are imported
MAX_OBJECTS = 500  # that are searched for the user's function
MAX_TASKS = 100  # of which the function is remembered
MAX_LIST_BYTES = 2**22  # of an array of which a list is made
MAX_WRAPPERS = 20  # around a function
MAX_DEPTH = 4  # of lists and dicts inside of each other in a batch that is made again
MAX_CONTAINERS = 10_000  # of a batch that are looked into
# Modules whose objects become part of a block without code of the user.
KNOWN_MODULES = {"builtins", "numpy", "torch", "pyarrow", "pandas", "PIL", "datetime", "decimal"}

TO_LIST = "tolist"  # the method of arrays and tensors that makes a list of them

# Several functions may have one name, such as "MapBatches(<lambda>)", so that only a task's id says which one it runs.
functions = {}  # id of a task -> "file:line" and name of the user's function, and whether it calls TO_LIST
counts = {}  # name of a task, "file:line" and name of its function -> how many of its batches had lists


def install_if_used(record):
    """Wrap the function that makes a block of a batch, if this process has imported Ray Data; once.

    `record(make_block, batch, start, seconds)` is called after each batch in a dict that was slow; `make_block(other)`
    makes a block of another batch in the same way. Without the function in this version of Ray, nothing happens.
    """
    accessor = ray_internals.data_accessor()
    original = getattr(accessor, ray_internals.BATCH_TO_BLOCK, None)
    if original is None or hasattr(original, "__raymeter__"):
        return

    @functools.wraps(original)
    def batch_to_block(batch, *args, **kwargs):
        start = time.time()
        block = original(batch, *args, **kwargs)
        seconds = time.time() - start
        if seconds >= MIN_SECONDS and type(batch) is dict:
            record(lambda other: original(other, *args, **kwargs), batch, start, seconds)
        return block

    batch_to_block.__raymeter__ = True
    setattr(accessor, ray_internals.BATCH_TO_BLOCK, staticmethod(batch_to_block))


def lists_of(batch):
    """Return the columns of a batch that are lists of numbers, or of rows of numbers."""
    return {name: column for name, column in batch.items() if is_list_of_numbers(column)}


def is_list_of_numbers(column):
    """Return whether a column is such a list, judged by its first row."""
    if type(column) is not list or not column:
        return False
    first = column[0]
    if type(first) in (list, tuple) and first:
        first = first[0]
    return type(first) in describe.NUMBERS


def describe_batch(make_block, batch, lists, has_time):
    """Return what is known of a batch with lists: its largest column, and once what making a block of arrays takes.

    `lists` are its columns with lists, at least one. "column" is "" if its name may be data of the user. Only batch
    MEASURED_BATCH of a function is measured, if there is time, and if all values are of known libraries:
    "array_seconds" is -1 if there is no block of arrays.
    """
    by_name = ray_internals.current_name()
    name = max(lists, key=lambda key: count_numbers(lists[key]))
    line, function, calls_to_list = find_users_function(ray_internals.current_task())
    key = (by_name, line, function)
    counts[key] = counts.get(key, 0) + 1
    described = {
        "by_name": by_name,
        "column": name if describe.is_name(name, len(batch)) else "",
        "rows": len(lists[name]),
        "line": line,
        "function": function,
    }
    if counts[key] == MEASURED_BATCH and has_time() and Contents().is_known(list(batch.values())):
        arrays = make_arrays(lists)
        described["array_seconds"] = measure_arrays(make_block, batch, arrays)
        if calls_to_list:
            described["to_list_seconds"] = measure_to_list(arrays)
    return described


def count_numbers(column):
    """Return how many numbers a column has, judged by its first row."""
    first = column[0]
    return len(column) * (len(first) if type(first) in (list, tuple) else 1)


class Contents:
    """Whether values, and what is inside of them, are of KNOWN_MODULES: making a block asks others for more."""

    def __init__(self):
        self.containers = 0  # that were looked into

    def is_known(self, values, depth=MAX_DEPTH):
        """Return whether it is so; False if too many containers are inside of these values, or too deep."""
        kinds = set(map(type, values))
        modules = {ray_internals.module_of(kind) for kind in kinds}
        roots = {module.partition(".")[0] for module in modules}
        if not roots <= KNOWN_MODULES:
            return False
        if kinds.isdisjoint(
            {list, tuple, dict, getattr(sys.modules.get("numpy"), "ndarray", list)}
        ):
            return True  # such as the numbers of a row, of which there may be millions
        return all(self.is_inside_known(value, depth) for value in values)

    def is_inside_known(self, value, depth):
        inside = contents_of(value)
        if not inside:
            return True
        self.containers += 1
        if self.containers > MAX_CONTAINERS or depth == 0:
            return False
        return self.is_known(inside, depth - 1)


def contents_of(value):
    """Return what is inside of a list, a dict or an array of objects; [] for others."""
    if type(value) in (list, tuple):
        return value
    if type(value) is dict:
        return [*value, *value.values()]
    has_objects = describe.is_of(value, getattr(sys.modules.get("numpy"), "ndarray", ()))
    return value.reshape(-1).tolist() if has_objects and value.dtype.hasobject else []


def make_arrays(lists):
    """Return these columns as arrays; {} if rows of several lengths have none."""
    numpy = sys.modules.get("numpy")
    try:
        arrays = {name: numpy.asarray(column) for name, column in lists.items()}
    except Exception:
        return {}
    if any(array.dtype == object for array in arrays.values()):
        return {}
    return arrays


def measure_arrays(make_block, batch, arrays):
    """Return the seconds that making a block takes with arrays in the place of lists; -1 if that is not possible."""
    if not arrays:
        return -1.0
    begin = time.perf_counter()
    try:
        make_block({**batch, **arrays})
    except Exception:
        return -1.0
    return time.perf_counter() - begin


def measure_to_list(arrays):
    """Return the seconds that making lists of these arrays takes; of the first rows of large ones, for all rows."""
    seconds = 0.0
    for array in arrays.values():
        rows = len(array)
        taken = min(rows, max(1, MAX_LIST_BYTES * rows // max(1, array.nbytes)))
        part = array[:taken]
        begin = time.perf_counter()
        part.tolist()
        seconds += (time.perf_counter() - begin) * rows / taken
    return seconds


def find_users_function(task):
    """Return "file:line" and name of the user's function in the running task, and whether it makes lists of arrays."""
    found = functions.get(task)
    if found is None:
        if len(functions) >= MAX_TASKS:
            functions.clear()
        try:
            found = search_transformer(ray_internals.data_transformer())
        except Exception:  # an object that does not look like any other
            found = ("", "", False)
        functions[task] = found
    return found


def search_transformer(transformer):
    """Return "file:line" and name of the user's function inside of an object of Ray Data, and whether it calls TO_LIST.

    Of several functions, it is the last one. Return "", "" and False if none is among the first MAX_OBJECTS objects.
    Among these are the arguments of the user's function, of which nothing is asked.
    """
    waiting = [transformer]
    seen = set()
    while waiting and len(seen) < MAX_OBJECTS:
        item = waiting.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        function = item.__func__ if type(item) is types.MethodType else item
        if type(function) is types.FunctionType:
            code = function.__code__
            if place.kind_of(code) == place.USERS:
                return line_of(function), function.__name__, TO_LIST in code.co_names
        waiting.extend(parts_of(function))
    return "", "", False


def line_of(function):
    """Return "file:line" where a function is defined, inside of its decorators if these are functions."""
    for _ in range(MAX_WRAPPERS):
        wrapped = vars(function).get("__wrapped__")
        if type(wrapped) is not types.FunctionType:
            break
        function = wrapped
    return place.definition_line(function.__code__)


def parts_of(item):
    """Return what may hold the user's function: the variables of a closure, and the attributes of Ray's objects.

    Of a list, the last item comes first, because the last function counts. Return [] for anything else.
    """
    kind = type(item)
    if kind is types.FunctionType:
        return contents_of_cells(item.__closure__ or ())
    if kind is functools.partial:
        return [item.func]
    if kind in (list, tuple):
        return list(reversed(item))
    if issubclass(kind, type):
        return [containers.find_in_class(item, "__call__")]
    if ray_internals.is_of_data(item):
        return list(containers.attributes_of(item).values())
    return []


def contents_of_cells(cells):
    """Return the variables of a closure, without those that have no value yet."""
    found = []
    for cell in cells:
        with contextlib.suppress(ValueError):
            found.append(cell.cell_contents)
    return found
