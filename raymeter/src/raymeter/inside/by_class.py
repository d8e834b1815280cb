# SPDX-License-Identifier: Apache-2.0
"""Remember something about each class, without keeping the class alive: a program may make one in each step."""

import weakref


class KeyedReference(weakref.ref):
    """A weak reference to a class, with the id that the class had."""

    __slots__ = ("key",)

    def __new__(cls, kind, forget):
        return super().__new__(cls, kind, forget)

    def __init__(self, kind, forget):
        super().__init__(kind, forget)
        self.key = id(kind)


class ByClass:
    """Values by class.

    Looking one up by its id takes a fraction of what weakref.WeakKeyDictionary takes. Python calls `forget` before
    another object can get the id of a class, possibly during a garbage collection in any thread: it takes no lock.
    """

    def __init__(self):
        self.values = {}  # id of a class -> its value
        self.references = {}  # id of a class -> a weak reference to it

    def __contains__(self, kind):
        return id(kind) in self.values

    def get(self, kind, default=None):
        return self.values.get(id(kind), default)

    def set(self, kind, value):
        """Remember a value until the class is gone."""
        key = id(kind)
        if key not in self.references:
            self.references[key] = KeyedReference(kind, self.forget)
        self.values[key] = value

    def discard(self, kind):
        """Forget the value of a class that lives on."""
        self.values.pop(id(kind), None)

    def forget(self, reference):
        """Forget a class that is gone."""
        self.values.pop(reference.key, None)
        self.references.pop(reference.key, None)
