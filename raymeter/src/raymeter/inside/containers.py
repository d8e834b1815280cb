# SPDX-License-Identifier: Apache-2.0
"""Containers of Python whose items may be looked at and replaced: no code of the user runs for this.

Besides the built-in ones these are OrderedDict (such as the state_dict of a module of torch), defaultdict, Counter,
deque, and named tuples. Other subclasses may have their own ways to give and take items.
"""

from collections import Counter, OrderedDict, defaultdict, deque

from . import reading

MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
SEQUENCES = (list, tuple, deque)


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
