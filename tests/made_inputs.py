# SPDX-License-Identifier: Apache-2.0
"""Strategies of hypothesis for names, spaces, fields and messages, and the settings of all property tests.

The same inputs are made in every run, so that a change fails by itself and not by chance. Nothing is stored.
"""

import string

from hypothesis import settings
from hypothesis import strategies as st

from dataflow.flows.message import ITEM_BYTES, PYTHON_DTYPES, Field, Message

settings.register_profile("project", deadline=None, derandomize=True, database=None)
settings.load_profile("project")

TENSOR_DTYPES = sorted(ITEM_BYTES.keys() - PYTHON_DTYPES.keys())
sizes = st.integers(0, 4)
shapes = st.lists(sizes, max_size=3).map(tuple)
lengths = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple)
spaces = st.sampled_from(["", " ", "  ", "\t", "\n"])
words = st.text(string.ascii_lowercase, min_size=1, max_size=6)


@st.composite
def views(draw: st.DrawFn, extent: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a larger tensor, of which one with this shape is the first corner; or no shape."""
    if not extent or draw(st.booleans()):
        return ()
    return tuple(size + draw(sizes) for size in extent)


@st.composite
def fields(draw: st.DrawFn, name: str) -> Field:
    """Return a tensor, a list of tensors, or a list of Python objects, each of them also empty."""
    kind = draw(st.sampled_from(["tensor", "list", "python"]))
    if kind == "python":
        return Field(name, draw(st.sampled_from(sorted(PYTHON_DTYPES))), lengths=draw(lengths))
    dtype = draw(st.sampled_from(TENSOR_DTYPES))
    if kind == "tensor":
        shape = draw(shapes)
        return Field(name, dtype, shape, storage=draw(views(shape)))
    items = draw(lengths)
    storage = draw(views((len(items), max(items))))
    return Field(name, dtype, lengths=items, storage=storage)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Return a message of several fields, one of which has room for a sequence number."""
    names = draw(st.lists(words, min_size=1, max_size=5, unique=True))
    made = [draw(fields(name)) for name in names]
    number = Field("number_", "int64", (draw(st.integers(1, 3)),))
    made.insert(draw(st.integers(0, len(made))), number)
    return Message(tuple(made))
