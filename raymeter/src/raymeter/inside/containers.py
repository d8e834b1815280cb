# SPDX-License-Identifier: Apache-2.0
"""Containers of Python whose items may be looked at and replaced: no code of the user runs for this.

Besides the built-in ones these are OrderedDict (such as the state_dict of a module of torch), defaultdict, Counter,
deque, and named tuples. Other subclasses may have their own ways to give and take items.
"""

import types
from collections import Counter, OrderedDict, defaultdict, deque
from itertools import islice

from . import reading

MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
SEQUENCES = (list, tuple, deque)
LISTED = (*SEQUENCES, set, frozenset)
TRIES = 10  # to take the items of a container that another thread changes meanwhile

bases_of = type.__dict__["__mro__"].__get__  # which asks no code of a metaclass
contents_of = type.__dict__["__dict__"].__get__


def is_mapping(part):
    return type(part) in MAPPINGS


def is_sequence(part):
    return type(part) in SEQUENCES or is_named_tuple(type(part))


def is_named_tuple(kind):
    """Return whether a class was made by `collections.namedtuple` or `typing.NamedTuple`, or inherits all from it."""
    if not issubclass(kind, tuple) or not isinstance(getattr(kind, "_fields", None), tuple):
        return False
    makes = kind.__new__
    return hasattr(makes, "__code__") and reading.is_of_named_tuple(makes)


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
        return OrderedDict(items)
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
    for base in bases_of(type(part)):
        found = contents_of(base).get("__dict__")
        if found is not None:
            attributes = found.__get__(part) if type(found) is types.GetSetDescriptorType else None
            return attributes if type(attributes) is dict else {}
    return {}
