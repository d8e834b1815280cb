# SPDX-License-Identifier: Apache-2.0
"""The share of a field that is one value is found in arrays, tensors and Arrow fields, and lists in them."""

import numpy as np
import pytest
from raymeter.inside import describe
from raymeter.inside.padding import share_of_one_value

pa = pytest.importorskip("pyarrow")
torch = pytest.importorskip("torch")


def make_padded():
    """Return 1,000 rows, three quarters of which are padding."""
    tokens = np.full((1_000, 200), 7)
    tokens[:, :50] = 100 + np.arange(50_000).reshape(1_000, 50)
    return tokens


def make_lists(values):
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 200)


@pytest.mark.parametrize("make", [
    lambda values: values,
    torch.from_numpy,
    lambda values: pa.array(values.reshape(-1)),
    make_lists,
    lambda values: pa.chunked_array([make_lists(values)]),
    lambda values: pa.table({"id": np.arange(1_000), "tokens": make_lists(values)}),
])  # fmt: skip
def test_three_quarters_are_padding(make):
    padded = make(make_padded())
    assert share_of_one_value(padded) == pytest.approx(0.75, abs=0.05)
    assert describe.describe({"x": padded})[0]["one_value"] == share_of_one_value(padded)
    assert share_of_one_value(make(np.arange(200_000).reshape(1_000, 200))) < 0.01


@pytest.mark.parametrize("width", [1000, 1024, 4095, 8192, 16384, 20000])
def test_the_width_of_the_rows_does_not_matter(width):
    rows = np.zeros((512, width), np.int32)
    count = width // 16
    rows[:, :count] = 1 + np.arange(512 * count).reshape(512, count)
    assert share_of_one_value(rows) == pytest.approx(15 / 16, abs=0.02)


class ImageType(pa.ExtensionType):
    """A column of images, as Ray Data has them: to_numpy returns them with their shape."""

    def __init__(self):
        super().__init__(pa.list_(pa.uint8(), 64 * 64), "images")

    def __arrow_ext_serialize__(self):
        return b""

    def __arrow_ext_class__(self):
        return Images


class Images(pa.ExtensionArray):
    def to_numpy(self, zero_copy_only=True):
        numbers = self.storage.flatten().to_numpy(zero_copy_only=zero_copy_only)
        return numbers.reshape(len(self), 64, 64)


def test_the_numbers_of_a_column_of_images_are_those_of_all_rows():
    images = np.zeros((100, 64 * 64), np.uint8)
    images[:25] = 1
    lists = pa.FixedSizeListArray.from_arrays(pa.array(images.reshape(-1)), 64 * 64)
    column = pa.ExtensionArray.from_storage(ImageType(), lists)
    assert share_of_one_value(column) == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize("value", [
    np.array(["a"] * 100), np.zeros((10, 10))[:, ::2], np.zeros(0), pa.array(["a", "b"]), pa.array([1, None]),
    torch.zeros(10, dtype=torch.bfloat16), np.zeros(10, bool), "text",
])  # fmt: skip
def test_what_has_no_numbers_in_a_row_has_no_share(value):
    assert share_of_one_value(value) == 0.0
