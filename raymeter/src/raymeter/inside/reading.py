# SPDX-License-Identifier: Apache-2.0
"""Judge whether a message may be read where it was sent, to measure this: that makes copies of its objects.

A copy of an object that owns a folder or a handle takes it away when it ends, and a class may do anything when it is
read. The pickle names all classes and functions that reading it uses. Here they are replaced by others that do nothing.

What `weakref.finalize` was told to do cannot be seen. It belongs to one object, and no copy has it, but for one whose
class calls it when it is read: such a class has a function for this, so it is not read.
"""

import io
import pickle
import sys
import types
import weakref
from abc import ABCMeta
from pkgutil import resolve_name

from . import ray_internals

# Libraries whose functions only make arrays, tables, images and containers again.
LIBRARIES = ("numpy", "torch", "pyarrow", "pandas", "polars", "scipy", "PIL", "tensordict")
KNOWN = frozenset([*sys.stdlib_module_names, *LIBRARIES, "ray", "raymeter"])
READING = ("__new__", "__setstate__", "__reduce__", "__reduce_ex__", "__setattr__")
FILLING = ("append", "extend", "add", "__setitem__")  # a container with its items
COPYING = ("__getattribute__", "__getattr__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")

plain_kinds = (
    weakref.WeakKeyDictionary()
)  # classes, which are not kept alive -> whether they are plain


class HasDestructor(Exception):
    """A message has a class with `__del__`, which the end of a copy would call."""


def may_read(pickled, buffers):
    """Return whether reading a message runs no code of its classes; raise HasDestructor if ending a copy would.

    Return False also if the pickle cannot be read with stand-ins, or names what this process does not know.
    """
    file = io.BufferedReader(io.BytesIO(pickled))
    names = NamesOfPickle(file, buffers=buffers)
    try:
        names.load()
    except Exception:  # what is read cannot be known without reading it
        return False
    kinds = [item for item in names.found if isinstance(item, type)]
    if any(has_destructor(kind) for kind in kinds):
        raise HasDestructor
    are_known = all(is_known(item) for item in names.called)
    return are_known and None not in names.found and not any(reads_itself(kind) for kind in kinds)


class NamesOfPickle(pickle.Unpickler):
    """Read a message with stand-ins. `found` are its classes and functions, None for an unknown one."""

    def __init__(self, file, buffers):
        super().__init__(file, buffers=buffers)
        self.found = []
        self.called = []

    def find_class(self, module, name):
        if module == ray_internals.CLOUDPICKLE and name == ray_internals.MAKE_CLASS:
            return self.find_made_class
        if module == ray_internals.CLOUDPICKLE and name == ray_internals.BUILTIN_TYPE:
            return self.find_builtin_type
        found = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        return self.stand_in(found)

    def find_made_class(self, constructor, name, bases, values, *identity):
        """Return a stand-in for a class whose code is in the pickle; this process may have it."""
        known = resolve_name(ray_internals.CLASSES_BY_ID)
        return self.stand_in(known.get(identity[0]))

    def find_builtin_type(self, name):
        """Return a stand-in for a type of the interpreter, such as that of code."""
        return self.stand_in(getattr(types, name, None))

    def stand_in(self, found):
        self.found.append(found)
        return StandInType("StandIn", (StandIn,), {"found": found, "called": self.called})


class StandInType(type):
    """The class of stand-ins for classes and functions."""

    def __call__(cls, *_, **__):
        cls.called.append(cls.found)
        return object.__new__(cls)


class StandIn:
    """Take the place of an object, and accept whatever is done to it."""

    def __init__(self, *_):
        pass  # or object.__new__ would take no arguments

    def accept(self, *_):
        pass

    def __call__(self, *_, **__):
        self.called.append(None)
        return self

    __setstate__ = __setitem__ = append = extend = add = update = accept


def has_destructor(kind):
    return any("__del__" in vars(base) for base in kind.__mro__)


def is_known(item):
    """Return whether what is called to read a message is of a known library, or a class without its own `__init__`."""
    if isinstance(item, type):
        return not has_own_function(item, ["__init__"])
    module = getattr(item, "__module__", None) or "builtins"
    return item is not None and module.partition(".")[0] in KNOWN


def reads_itself(kind):
    """Return whether a class says itself, in Python, how it is read."""
    return has_own_function(kind, [*READING, *FILLING])


def has_own_function(kind, names):
    """Return whether a class, or a base, has one of these functions in Python, and is of no known library."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in KNOWN:
            continue
        for name in names:
            function = vars(base).get(name)
            function = getattr(function, "__func__", function)  # of a static method
            if hasattr(function, "__code__") and not is_of_named_tuple(function):
                return True
    return False


def is_of_named_tuple(function):
    """Return whether a function was made by `collections.namedtuple`."""
    return function.__module__.startswith("namedtuple_")


def is_plain(kind):
    """Return whether an object of a class is no more than its attributes, so that a copy of it does no harm."""
    found = plain_kinds.get(kind)
    if found is None:
        found = plain_kinds[kind] = find_plain(kind)
    return found


def find_plain(kind):
    """Return whether objects of a class have attributes in `__dict__`, and nothing else.

    It has no metaclass but ABCMeta, no slots, and no function, also in its bases, that reads, copies or ends an object.
    """
    if type(kind) not in (type, ABCMeta) or has_destructor(kind):
        return False
    for base in kind.__mro__[:-1]:  # the last one is `object`
        attributes = vars(base)
        if not attributes.keys().isdisjoint([*READING, *COPYING]):
            return False
        if any(type(item) is types.MemberDescriptorType for item in attributes.values()):
            return False
        if type(attributes.get("__dict__")) not in (types.GetSetDescriptorType, type(None)):
            return False
    return True
