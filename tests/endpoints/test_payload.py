"""Test random fields: different for every sender and slot, equal in every process, and with sequence numbers."""

import subprocess
import sys

import pytest
from conftest import ROOT

from dataflow.endpoints.payload import digest, encode_number, make_field, number_part
from dataflow.flows.message import ITEM_BYTES, PYTHON_DTYPES, Field

MAKE = "make_field(Field('', 'int64', (512,)), 'policy', 1)"


def test_every_process_makes_the_same_payload():
    program = f"from dataflow.endpoints.payload import *; print(digest({MAKE}, 0))"
    other = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(other.stdout) == digest(make_field(Field("", "int64", (512,)), "policy", 1), 0)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (9,), (100,), (4, 5)], ids=str)
def test_a_sequence_number_has_as_many_bytes_or_bits_as_fit_into_the_first_row(shape):
    def encode(dtype, shape, number):
        return encode_number(number)[number_part(Field("", dtype, shape))]

    for dtype in set(ITEM_BYTES) - set(PYTHON_DTYPES) - {"bool"}:
        count = min(8, (shape or (1,))[-1] * ITEM_BYTES[dtype])
        for number in (1, 255, 256, 70_000):
            assert encode(dtype, shape, number) == (number % 256**count).to_bytes(count, "little")
    count = min(32, (shape or (1,))[-1])
    assert encode("bool", shape, 0b101) == bytes([1, 0, 1] + 29 * [0])[:count]
    assert encode("bool", (0, *shape), 0b101) == b""
