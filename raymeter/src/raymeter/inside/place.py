# SPDX-License-Identifier: Apache-2.0
"""Find the line of the user's code that has called Ray."""

import functools
import itertools
import linecache
import os
import sys

from . import ray_internals

# A worker with a runtime_env has this package as text, and then a module has no file.
RAYMETER_AS_TEXT = "<raymeter"
FILE = globals().get("__file__")
RAYMETER_FOLDER = os.path.dirname(os.path.abspath(FILE)) + os.sep if FILE else RAYMETER_AS_TEXT
LIBRARIES = f"{os.sep}site-packages{os.sep}"
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
MAX_FRAMES = 100
MAX_DECORATOR_LINES = 30
SKIPPED, LIBRARY, USERS = 0, 1, 2
kinds = {}  # id of a code object -> one of these three; an id costs much less to look up than the object
lines = {}  # ids of code objects and an instruction -> what find_line returns for it
kept_codes = []  # so that no other code object gets one of these ids
# In a program that makes functions again and again, the first ones are remembered, and others are looked at each time.
MAX_CODES = 10_000
MAX_LINES = 10_000
MAX_MARKED = 3  # frames of a call that are numbered: that of its line, and its callers
MAX_DEPTH = 6  # callers of a frame that get numbers with it
MAX_LOOKED_AT = 8  # frames between two of the user's code
numbers = itertools.count(1)  # of frames
MAX_ENTRIES = 1_000
entries = {}  # what was called, and who asks -> frames up to Ray's function that the user has called, and its code


def kind_of(code):
    """Return whether a function is the user's, of a library, or of Ray, raymeter or Python, which are skipped.

    Code that a user makes from text, such as "<string>", or in a notebook, is the user's.
    """
    kind = kinds.get(id(code))
    if kind is None:
        file = code.co_filename
        if file.startswith((ray_internals.FOLDER, RAYMETER_FOLDER, RAYMETER_AS_TEXT, "<frozen")):
            kind = SKIPPED
        elif LIBRARIES in file:
            kind = LIBRARY
        elif file.startswith(STANDARD_LIBRARY):
            kind = SKIPPED  # an event loop, or a thread, which calls nobody's code
        else:
            kind = USERS
        if len(kinds) < MAX_CODES:
            kept_codes.append(code)
            kinds[id(code)] = kind
    return kind


def is_users_file(file):
    """Return whether a file is no part of Ray, raymeter, Python or an installed library."""
    skipped = (ray_internals.FOLDER, RAYMETER_FOLDER, STANDARD_LIBRARY, "<")
    return not file.startswith(skipped) and LIBRARIES not in file


def running_line(name):
    """Return "file:line" of the method or task that runs here, by its name, if no line of it has called Ray.

    A result is serialised after the function has returned it, and a compiled graph calls methods by itself.
    """
    if name.endswith(ray_internals.COMPILED_LOOP):
        name = ray_internals.compiled_method() or name
    return method_line(name) or task_line()


def task_line():
    """Return "file:line" where the function of the running task is defined; "" if it is not known for sure."""
    lines = {function_line(function) for function in ray_internals.running_functions()}
    return lines.pop() if len(lines) == 1 else ""


def has_equal_names(name):
    """Return whether this worker knows several functions under the name of a task."""
    lines = {function_line(function) for function in ray_internals.functions_named(name)}
    return len(lines) > 1


class Mark:
    """The numbers of a frame and of its callers. It is where a debugger has a function, and does nothing if called."""

    __slots__ = ("numbers",)

    def __init__(self, numbers):
        self.numbers = numbers

    def __call__(self, frame, event, argument):
        return None


def number_frames(frame):
    """Return the numbers of a frame of the user's code and of its callers, the innermost first.

    A frame is one run of a function, or of a comprehension before Python 3.12. It keeps its number, and nothing here
    keeps the frame. A debugger needs the place of the number for itself. Return () then, and for a frame of other code.
    """
    if frame is None:
        return ()
    mark = frame.f_trace
    if type(mark) is Mark:
        return mark.numbers
    if mark is not None or sys.gettrace() is not None or kind_of(frame.f_code) != USERS:
        return ()
    return mark_frame(frame, MAX_DEPTH).numbers


def number_entry(frame):
    """Return the number of the run of the function that a frame of the user's code has called; 0 without a number.

    A statement that calls a library once, such as `algorithm.train()`, may call Ray many times. Each run of the
    library's function keeps its number, as frames of the user's code do. It gets none while a debugger runs, or if it
    is more than MAX_FRAMES away.
    """
    if frame is None or kind_of(frame.f_code) != USERS:
        return 0
    entry = called_by(frame)
    if entry is None:
        return 0
    mark = entry.f_trace
    if mark is None and sys.gettrace() is None:
        mark = entry.f_trace = Mark((next(numbers),))
    return mark.numbers[0] if type(mark) is Mark else 0


def called_by(frame):
    """Return the running frame that another one has called; None if it is far away."""
    entry = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if entry is None or entry.f_back is frame:
            return entry
        entry = entry.f_back
    return None


def mark_frame(frame, depth):
    """Give a number to a frame and to at most `depth` of its callers, and return its mark."""
    callers = ()
    caller = users_caller(frame) if depth else None
    if caller is not None:
        mark = caller.f_trace
        if mark is None:
            mark = mark_frame(caller, depth - 1)
        if type(mark) is Mark:
            callers = mark.numbers
    of_all = (next(numbers), *callers)
    mark = frame.f_trace = Mark(of_all[:MAX_MARKED])
    return mark


def users_caller(frame):
    """Return the next frame of the user's code around one; None if it is far away."""
    for _ in range(MAX_LOOKED_AT):
        frame = frame.f_back
        if frame is None:
            return None
        if kind_of(frame.f_code) == USERS:
            return frame
    return None


def instruction_of(frame):
    """Return which instruction of the user's function runs, because one line can call a library twice; -1 without."""
    if frame is None or kind_of(frame.f_code) != USERS:
        return -1
    return frame.f_lasti


def find_line():
    """Return "file:line" and the function of the innermost call by the user's code, or by a library without one."""
    return line_of(find_frame())


def key_of_call(called, asked_by=""):
    """Return a key of the place in the user's code that calls Ray: its instruction. All calls from there have it.

    `called` stands for the function of Ray that is wrapped. If no frame is found, all calls of it have one key; code
    that is not remembered has its line in the key, which takes longer. `asked_by` tells who asks, because the frames
    between differ, and is not in the key: there are as many as the last time, if the user has called the same function.
    If not, the user's frame is searched for.
    """
    asked = called, asked_by
    known = entries.get(asked)
    if known is None:
        return search_key_of_call(asked)
    depth, code = known
    try:
        entry = sys._getframe(depth)
    except ValueError:  # fewer frames
        return search_key_of_call(asked)
    frame = entry.f_back
    if entry.f_code is not code or frame is None:
        return search_key_of_call(asked)
    users = frame.f_code
    if kinds.get(id(users)) != USERS:
        return search_key_of_call(asked)
    if users.co_name == "<listcomp>":
        return key_of_frame(called, frame)
    return called, frame.f_lasti, id(users)


def search_key_of_call(asked):
    """Return what `key_of_call` returns, and remember where it was found for the next time.

    `asked` has what was called, and who asks.
    """
    called, _ = asked
    frame = sys._getframe(1)
    for depth in range(MAX_FRAMES):
        caller = frame.f_back
        if caller is None or kind_of(frame.f_code) != SKIPPED:
            break
        if kind_of(caller.f_code) == USERS:
            if len(entries) < MAX_ENTRIES:
                entries[asked] = depth, frame.f_code
            break
        frame = caller
    return key_of_frame(called, find_frame())


def key_of_frame(called, frame):
    """Return the key of a call of Ray by this frame: its instruction, or its line if its code is not remembered.

    `called` stands for the function of Ray. Without a frame, all calls of it have one key.
    A comprehension is told from the same one in another function, which has another name.
    """
    if frame is None:
        return called, "", ""
    code = frame.f_code
    if kind_of(code) != USERS or id(code) not in kinds:
        return called, *line_of(frame)
    if code.co_name == "<listcomp>":
        return called, frame.f_lasti, id(code), *line_of(frame)
    return called, frame.f_lasti, id(code)


def line_of(frame):
    """Return "file:line" and the function of a frame."""
    return known_frame(frame, frame.f_code) if frame is not None else ("", "")


def find_frame():
    """Return the frame of the innermost call by the user's code, or by a library without one; None without both."""
    frame = sys._getframe(1)
    innermost = None
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        kind = kinds.get(id(code))
        if kind is None:
            kind = kind_of(code)
        if kind == USERS:
            return frame
        if kind == LIBRARY and innermost is None:
            innermost = frame
        frame = frame.f_back
    return innermost


def known_frame(frame, code):
    """Return what `describe_frame` does: "file:line" and function of a frame. It is remembered by instruction.

    A comprehension is described together with the function around it, which may be another one the next time.
    """
    around = frame.f_back.f_code if code.co_name == "<listcomp>" else code
    key = id(code), frame.f_lasti, id(around)
    found = lines.get(key)
    if found is None:
        found = describe_frame(frame)
        if len(lines) < MAX_LINES and not around.co_name.startswith("<"):
            kept_codes.append(code)
            kept_codes.append(around)
            lines[key] = found
    return found


def describe_frame(frame):
    """Return "file:line" and the name of the function, which for a comprehension is that of the function around it."""
    line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    name = frame.f_code.co_name
    while name.startswith("<") and name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
        name = frame.f_code.co_name
    return line, name


def method_line(name):
    """Return "file:line" where the running method of an actor is defined; "" for a task or an unknown method."""
    method = getattr(type(ray_internals.current_actor()), name.rpartition(".")[2], None)
    return function_line(method)


def function_line(function):
    """Return "file:line" where a function is defined; "" for one that is not written in Python.

    Ray's executor of a method has the method as an attribute.
    """
    function = getattr(function, "method", function)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return definition_line(code) if code is not None else ""


@functools.lru_cache(maxsize=1_000)
def definition_line(code):
    """Return "file:line" of the "def" of a function, which stands below its decorators; of a lambda its own line."""
    for number in range(code.co_firstlineno, code.co_firstlineno + MAX_DECORATOR_LINES):
        text = linecache.getline(code.co_filename, number).lstrip()
        if text.startswith(("def ", "async def ")):
            return f"{code.co_filename}:{number}"
    return f"{code.co_filename}:{code.co_firstlineno}"


def class_line(kind):
    """Return "file:line" of the "class" of a class, found above its methods; "" if none is written in Python."""
    codes = [getattr(item, "__code__", None) for item in vars(kind).values()]
    known = [code for code in codes if code is not None]
    if not known:
        return ""
    first = min(known, key=lambda code: code.co_firstlineno)
    for number in range(first.co_firstlineno, 0, -1):
        text = linecache.getline(first.co_filename, number).lstrip()
        if text.startswith(f"class {kind.__name__}"):
            return f"{first.co_filename}:{number}"
    return f"{first.co_filename}:{first.co_firstlineno}"
