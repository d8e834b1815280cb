"""The bytes of a field: distinct in every sender and slot, the same in every process, and how a stamp lies in them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from payload_ends import FIELDS

from common.flow.message import ITEM_BYTES, PYTHON, Field
from common.payload.pattern import digest, make_field, raw, stamp

ROOT = Path(__file__).resolve().parents[2]
MAKE = "make_field(Field('', 'int64', (512,)), 'policy', 1)"


def test_every_process_makes_the_same_payload():
    program = f"from common.payload.pattern import *; print(digest({MAKE}, 0))"
    other = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(other.stdout) == digest(eval(MAKE), 0)


def test_payloads_of_all_senders_slots_and_fields_differ():
    fields = [Field(name, "int64", (64,)) for name in ("tokens", "mask")]
    made = [make_field(field, sender, slot) for field in fields for sender in ("driver", "policy") for slot in range(3)]
    assert len({leaves[0].tobytes() for leaves in made}) == len({digest(leaves, 0) for leaves in made}) == len(made)


def test_a_payload_does_not_compress():
    """Constant bytes would flatter a transport that compresses."""
    values, counts = np.unique(raw(make_field(Field("", "int64", (2**17,)), "policy", 0)[0]), return_counts=True)
    assert len(values) == 256
    assert counts.max() < 2 * counts.min()


@pytest.mark.parametrize("field", FIELDS.fields, ids=lambda field: field.name)
def test_a_field_is_made_of_its_own_types_and_shapes(field):
    leaves = make_field(field, "policy", 0)
    if field.dtype == "str":
        assert [len(text.encode()) for text in leaves] == list(field.lengths)
    elif field.python:
        kind = int if field.dtype == "ints" else float
        assert [[type(number) for number in leaf] for leaf in leaves] == [[kind] * count for count in field.lengths]
    else:
        assert [(leaf.dtype, leaf.shape) for leaf in leaves] == [(field.dtype, shape) for shape in field.shapes]
        assert all(np.isfinite(leaf).all() for leaf in leaves)


@pytest.mark.parametrize("dtype", [dtype for dtype in ITEM_BYTES if dtype not in (*PYTHON, "bool")])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (9,), (4, 1), (4, 5)], ids=str)
def test_the_stamp_is_the_number_in_as_many_bytes_as_the_first_row_has(dtype, shape):
    count = min(8, (shape or (1,))[-1] * ITEM_BYTES[dtype])
    for number in (1, 255, 256, 70_000):
        assert stamp(Field("", dtype, shape), number) == (number % 256**count).to_bytes(count, "little")


@pytest.mark.parametrize(("shape", "count"), [((), 1), ((3,), 3), ((100,), 32), ((5, 20), 20), ((0, 5), 0)])
def test_bools_bear_the_number_bit_by_bit(shape, count):
    assert stamp(Field("", "bool", shape), 0b101) == bytes([1, 0, 1] + 29 * [0])[:count]
