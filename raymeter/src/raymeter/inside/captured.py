# SPDX-License-Identifier: Apache-2.0
"""Find what brings its bytes into the code of a task or of an actor that Ray pickles for the workers.

With a function travel the variables of the functions around it, its default values, its attributes, and the global
variables that its code names, also in functions inside of it (_function_getstate and _extract_code_globals in
ray/cloudpickle/cloudpickle.py of Ray 2.60). With a class travel its attributes, and so its methods.
"""

import dis
import inspect
import types

from . import alternatives, describe

MAX_CAPTURED = 8  # variables that are named
GLOBAL_INSTRUCTIONS = ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL")


def describe_captured(code):
    """Return name, type and pickled bytes of what a function or class brings with it, at most MAX_CAPTURED.

    The largest comes first. 0 bytes: it cannot be pickled. Left out are modules, names that begin with two underscores,
    and what a decorator wraps. A function that is not written in Python brings nothing. A class is the user's own,
    not the one that Ray has made of it.
    """
    is_class = isinstance(code, type)
    seen = set(map(id, own_bases(code) if is_class else wrapped_functions(code)))
    variables = variables_of_class(code) if is_class else variables_of(code)
    captured = []
    for name, item in variables:
        if id(item) in seen or inspect.ismodule(item) or name.startswith("__"):
            continue
        seen.add(id(item))
        size = alternatives.pickled_bytes(item)
        captured.append({"name": name, "type": describe.type_name(item), "bytes": size})
    captured.sort(key=lambda variable: -variable["bytes"])
    return captured[:MAX_CAPTURED]


def variables_of_class(kind):
    """Return name and value of the attributes of a class, and of what its methods bring with them."""
    variables = []
    for base in own_bases(kind):
        for name, item in vars(base).items():
            function = getattr(item, "__func__", item)  # of a static method or a class method
            if inspect.isfunction(function):
                variables += variables_of(function)
            else:
                variables.append((name, item))
    return variables


def own_bases(kind):
    """Return a class, and those that it inherits from in its own module: others are imported by the workers."""
    return [base for base in kind.__mro__ if base.__module__ == kind.__module__]


def variables_of(function):
    """Return name and value of what a function brings with it, and of what the functions bring that it wraps."""
    variables = []
    for wrapped in wrapped_functions(function):
        if inspect.isfunction(wrapped):
            variables += variables_around(wrapped)
            variables += default_values(wrapped)
            variables += vars(wrapped).items()
            variables += global_variables(wrapped)
    return variables


def wrapped_functions(function):
    """Return a function, and those that its decorators have wrapped, the outermost first."""
    functions = []
    while function is not None and function not in functions:
        functions.append(function)
        function = getattr(function, "__wrapped__", None)
    return functions


def variables_around(function):
    """Return name and value of the variables of the functions around a function; not of those without a value yet."""
    variables = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            variables.append((name, cell.cell_contents))
        except ValueError:  # it is empty
            continue
    return variables


def default_values(function):
    """Return name and default value of the parameters of a function that have one."""
    code = function.__code__
    defaults = function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    first = len(positional) - len(defaults)
    keywords = function.__kwdefaults__ or {}
    return [*zip(positional[first:], defaults, strict=False), *keywords.items()]


def global_variables(function):
    """Return name and value of the global variables that a function uses."""
    known = function.__globals__
    names = global_names(function.__code__)
    return [(name, known[name]) for name in names if name in known]


def global_names(code):
    """Return the names of the global variables in a code, and in the functions and comprehensions inside of it."""
    names = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in GLOBAL_INSTRUCTIONS:
            names.append(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += global_names(constant)
    return names
