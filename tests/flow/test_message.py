"""What a message may be, how many bytes it has, and where each of its leaves lies in a packed buffer."""

from itertools import pairwise

import pytest
from payload_ends import FIELDS

from common.flow.message import Field, Message, flat

NUMBER = Field("number", "int64", (1,))


@pytest.mark.parametrize(
    "given",
    [
        {"dtype": "int65", "shape": (2,)},
        {"dtype": "str"},
        {"dtype": "str", "shape": (2,)},
        {"dtype": "int64", "shape": (2, -1)},
        {"dtype": "int64", "lengths": (2, -1)},
        {"dtype": "int64", "shape": (2,), "lengths": (2,)},
        {"dtype": "int64", "shape": (2, 3), "storage": (2, 2)},
        {"dtype": "int64", "shape": (2, 3), "storage": (6,)},
        {"dtype": "int64", "lengths": (2, 3), "storage": (1, 3)},
        {"dtype": "int64", "lengths": (2, 3), "storage": (2, 2)},
    ],
    ids=str,
)
def test_a_field_that_cannot_be_is_refused_by_its_name_in_one_line(given):
    with pytest.raises(ValueError, match=r"^field 'logprobs'.*$"):
        Field("logprobs", **given)


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (NUMBER, NUMBER),
        (NUMBER, Field("", "int64", (2,))),
        (Field("words", "str", lengths=(3,)),),
        (Field("", "int64", (0,)),),
        (Field("empty", "int64", (4, 0)), Field("list", "int64", lengths=(0, 5)), Field("words", "str", lengths=(3,))),
    ],
    ids=["no field", "two of one name", "a tensor beside a dict", "strings alone", "no bytes", "empty first tensors"],
)
def test_a_message_that_cannot_be_told_from_another_is_refused(fields):
    with pytest.raises(ValueError, match=r"^.*message.*$"):
        Message(fields)


@pytest.mark.parametrize(
    ("field", "count"),
    [
        (Field("scalar", "float64"), 8),
        (Field("mask", "bool", (3, 5)), 15),
        (Field("halves", "float16", (3, 5)), 30),
        (Field("list", "int32", lengths=(3, 0, 2)), 20),
        (Field("words", "str", lengths=(3, 4)), 7),
        (Field("view", "float32", (2, 3), storage=(20, 30)), 24),
        (Field("empty", "int64", (0, 5)), 0),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_field_has_the_bytes_of_its_items(field, count):
    assert field.bytes == count
    assert Message((field, NUMBER)).bytes == count + 8


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16])
def test_a_flat_message_is_one_tensor_of_words_where_they_fit(count):
    message = flat(count)
    assert (message.bare, message.bytes, message.packed_bytes) == (True, count, count)
    assert message.fields[0].dtype == ("uint8" if count % 8 else "int64")
    with pytest.raises(ValueError, match=f"a message of {-count} bytes"):
        flat(-count)


def test_fields_of_a_packed_message_are_aligned_and_leaves_do_not_overlap():
    leaves = FIELDS.leaves
    assert len(leaves) == sum(len(field.shapes) for field in FIELDS.fields)
    assert leaves[0].offset == 0
    for leaf, following in pairwise(leaves):
        gap = following.offset - (leaf.offset + leaf.bytes)
        assert gap == 0 if following.field is leaf.field else following.offset % 8 == 0 and 0 <= gap < 8
    assert sum(leaf.bytes for leaf in leaves) == FIELDS.bytes
    assert FIELDS.packed_bytes == leaves[-1].offset + leaves[-1].bytes
    assert Message((NUMBER, Field("mask", "bool", (3,)))).packed_bytes == 8 + 3
