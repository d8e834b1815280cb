"""Find the line of the user's code that has called Ray."""

import os
import sys

from . import ray_internals

OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
LIBRARIES = f"{os.sep}site-packages{os.sep}"
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
MAX_FRAMES = 100
SKIPPED, LIBRARY, USERS = 0, 1, 2
kinds = {}  # code object -> one of these three


def kind_of(code):
    """Return whether a function is the user's, of a library, or of Ray, raymeter or Python, which are skipped."""
    kind = kinds.get(code)
    if kind is None:
        file = code.co_filename
        if file.startswith((ray_internals.FOLDER, OURS, "<raymeter", "<frozen")):
            kind = SKIPPED
        elif LIBRARIES in file:
            kind = LIBRARY
        elif file.startswith(STANDARD_LIBRARY):
            kind = SKIPPED  # an event loop, or a thread, which calls nobody's code
        else:
            kind = USERS
        kinds[code] = kind
    return kind


def is_users_file(file):
    """Return whether a file is no part of Ray, raymeter, Python or an installed library."""
    skipped = (ray_internals.FOLDER, OURS, STANDARD_LIBRARY, "<")
    return not file.startswith(skipped) and LIBRARIES not in file


def running_line(name):
    """Return "file:line" of the method or task that runs here, by its name, if no line of it has called Ray.

    A result is serialised after the function has returned it, and a compiled graph calls methods by itself.
    """
    if name.endswith(ray_internals.COMPILED_LOOP):
        name = ray_internals.compiled_method() or name
    return method_line(name) or task_line()


def task_line():
    """Return "file:line" where the function of the running task is defined; "" if it is not known."""
    function = ray_internals.running_function()
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def find_line():
    """Return "file:line" and the function of the innermost call by the user's code, or by a library without one."""
    frame = sys._getframe(1)
    innermost = None
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        kind = kind_of(frame.f_code)
        if kind == USERS:
            return describe_frame(frame)
        if kind == LIBRARY and innermost is None:
            innermost = frame
        frame = frame.f_back
    return describe_frame(innermost) if innermost is not None else ("", "")


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
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    code = getattr(method, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""
