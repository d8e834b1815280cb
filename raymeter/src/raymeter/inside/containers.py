# SPDX-License-Identifier: Apache-2.0
"""Containers of Python whose items may be looked at and replaced: no code of the user runs for this.

Besides the built-in ones these are OrderedDict (such as the state_dict of a module of torch), defaultdict, Counter,
deque, and named tuples. Other subclasses may have their own ways to give and take items.

One with attributes of its own stays as it is: a copy without them would be less to send. The `_metadata` of a
state_dict are kept.
"""

import types
from abc import ABCMeta
from collections import Counter, OrderedDict, defaultdict, deque
from itertools import islice

from . import by_class, reading

MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
SEQUENCES = (list, tuple, deque)
LISTED = (*SEQUENCES, set, frozenset)
METADATA = {"_metadata"}  # the attribute of a state_dict, with the version of each module
GIVING = ("__iter__", "__len__", "__getitem__")  # with which a sequence gives its items
TRIES = 10  # to take the items of a container that another thread changes meanwhile

bases_of = type.__dict__["__mro__"].__get__  # which asks no code of a metaclass
contents_of = type.__dict__["__dict__"].__get__
named_kinds = by_class.ByClass()  # subclasses of tuple -> whether they are named tuples


def is_mapping(part):
    kind = type(part)
    if kind is OrderedDict:
        return METADATA.issuperset(attributes_of(part))
    return kind in MAPPINGS


def is_sequence(part):
    return type(part) in SEQUENCES or is_named_tuple(part)


def is_named_tuple(part):
    """Return whether a part was made by `collections.namedtuple` or `typing.NamedTuple`, and has nothing besides.

    Its class may inherit from such a one, if it does not say itself how items are taken or given.
    """
    kind = type(part)
    if not issubclass(kind, tuple):
        return False
    if kind not in named_kinds:
        named_kinds.set(kind, inherits_named_tuple(kind))
    return named_kinds.get(kind) and not has_attributes(part)


def inherits_named_tuple(kind):
    """Return what `is_named_tuple` does for objects of a class that is not known yet, whatever attributes they have."""
    if type(kind) not in (type, ABCMeta) or type(find_in_class(kind, "_fields")) is not tuple:
        return False
    if any(find_in_class(kind, name) is not vars(tuple)[name] for name in GIVING):
        return False
    makes = find_in_class(kind, "__new__")
    makes = makes.__func__ if type(makes) is staticmethod else makes
    return type(makes) is types.FunctionType and reading.is_of_named_tuple(makes)


def find_in_class(kind, name):
    """Return an attribute of a class or of its bases, as it is written there; None without one."""
    for base in bases_of(kind):
        contents = contents_of(base)
        if name in contents:
            return contents[name]
    return None


def has_attributes(part):
    """Return whether an object has attributes, or a class that says itself what they are."""
    found = find_in_class(type(part), "__dict__")
    if found is None:
        return False
    return type(found) is not types.GetSetDescriptorType or bool(found.__get__(part))


def with_items(part, items):
    """Return a sequence of the same type with other items."""
    kind = type(part)
    if kind is deque:
        return deque(items, part.maxlen)
    if kind in (list, tuple):
        return kind(items)
    return tuple.__new__(kind, items)


def with_values(part, items):
    """Return a mapping with other pairs of key and value. A Counter becomes a dict: it may hold only numbers."""
    kind = type(part)
    if kind is defaultdict:
        return defaultdict(part.default_factory, items)
    if kind is OrderedDict:
        made = OrderedDict(items)
        attributes_of(made).update(attributes_of(part))
        return made
    return dict(items)


def first_items(part, most):
    """Return the first items of a list, a tuple, a deque or a set, also of a subclass, in a list."""
    base = next(kind for kind in LISTED if issubclass(type(part), kind))
    return take(base.__iter__, part, most)


def first_pairs(part, most):
    """Return the first pairs of key and value of a dict, also of a subclass, in a list."""
    return take(dict.items, part, most)


def take(give_items, part, most):
    """Return the first of what a container gives; [] if other threads change it all the time."""
    for _ in range(TRIES):
        try:
            return list(islice(give_items(part), most))
        except RuntimeError:  # it was changed meanwhile
            pass
    return []


def attributes_of(part):
    """Return the attributes of an object; {} without any, or if its class says itself what they are."""
    found = find_in_class(type(part), "__dict__")
    attributes = found.__get__(part) if type(found) is types.GetSetDescriptorType else None
    return attributes if type(attributes) is dict else {}
