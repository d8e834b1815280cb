# SPDX-License-Identifier: Apache-2.0
"""Find lists of numbers in the batches of which Ray Data makes blocks, and measure what arrays would take.

A function of `map_batches` may return lists, as of `tolist()`. Ray Data looks at each of their numbers then, in the
task, where no message shows it. Other processes than its workers are left as they are, and import nothing of it.
"""

import functools
import sys
import time
import types

from . import describe, place, ray_internals

MIN_SECONDS = 0.001  # of making a block, below which it is not looked at
MEASURED_BATCH = 2  # of a task's name, in a process: before it, libraries are imported
MAX_OBJECTS = 500  # that are searched for the user's function

TO_LIST = "tolist"  # the method of arrays and tensors that makes a list of them

functions = {}  # name of a task -> "file:line" and name of the user's function, and whether it calls TO_LIST
counts = {}  # name of a task -> how many of its batches had lists


def install_if_used(record):
    """Wrap the function that makes a block of a batch, if this process has imported Ray Data; once.

    `record(make_block, batch, start, seconds)` is called after each one that was slow.
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
    """Return what is known of a batch with lists: its largest column, and once what making a block of arrays takes."""
    by_name = ray_internals.current_name()
    counts[by_name] = counts.get(by_name, 0) + 1
    name = max(lists, key=lambda key: count_numbers(lists[key]))
    line, function, calls_to_list = find_users_function(by_name)
    described = {
        "by_name": by_name,
        "column": name if describe.is_name(name, len(batch)) else "",
        "rows": len(lists[name]),
        "line": line,
        "function": function,
    }
    if counts[by_name] == MEASURED_BATCH and has_time():
        arrays = make_arrays(lists)
        described["array_seconds"] = measure_arrays(make_block, batch, arrays)
        if calls_to_list:
            described["to_list_seconds"] = measure_to_list(arrays)
    return described


def count_numbers(column):
    """Return how many numbers a column has, judged by its first row."""
    first = column[0]
    return len(column) * (len(first) if type(first) in (list, tuple) else 1)


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
    """Return the seconds that making lists of these arrays takes."""
    begin = time.perf_counter()
    for array in arrays.values():
        array.tolist()
    return time.perf_counter() - begin


def find_users_function(by_name):
    """Return "file:line" and name of the user's function in the running task, and whether it makes lists of arrays."""
    if by_name not in functions:
        functions[by_name] = search(ray_internals.data_transformer())
    return functions[by_name]


def search(transformer):
    """Return the same of what is inside of Ray Data's own objects: of several functions, the last one."""
    waiting = [transformer]
    seen = set()
    while waiting and len(seen) < MAX_OBJECTS:
        item = waiting.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        code = getattr(item, "__code__", None)
        if code is not None and place.kind_of(code) == place.USERS:
            return place.function_line(item), item.__name__, TO_LIST in code.co_names
        waiting.extend(parts_of(item))
    return "", "", False


def parts_of(item):
    """Return what may hold the user's function: the variables of a closure, and the attributes of Ray's objects."""
    if isinstance(item, types.FunctionType):
        return [cell.cell_contents for cell in item.__closure__ or ()]
    if isinstance(item, functools.partial):
        return [item.func]
    if isinstance(item, (list, tuple)):
        return list(reversed(item))
    if isinstance(item, type):
        return [item.__dict__.get("__call__")]
    if ray_internals.is_of_data(item):
        return list(vars(item).values())
    return []
