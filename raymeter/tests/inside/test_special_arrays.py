# SPDX-License-Identifier: Apache-2.0
"""Types whose arrays are copied into the pickle are measured with their arrays beside it, and come back equal."""

import io
import pickle

import numpy as np
import pytest
from raymeter.inside import (
    alternatives,
    conversions,
    describe,
    identity,
    ray_internals,
    special_arrays,
)

torch = pytest.importorskip("torch")
COUNT = 40_000


class Frames(np.ndarray):
    """A subclass that adds nothing."""


class Quantity(np.ndarray):
    """A subclass whose attribute travels with it."""

    def __reduce__(self):
        function, arguments, state = super().__reduce__()
        return function, arguments, (state, vars(self))

    def __setstate__(self, state):
        super().__setstate__(state[0])
        vars(self).update(state[1])


def make_quantity():
    array = np.arange(COUNT, dtype=float).view(Quantity)
    array.unit = "m"
    return array


def make_masked():
    data = np.arange(COUNT, dtype=float)
    return np.ma.MaskedArray(data, data > 100, fill_value=-1.0)


def make_dense():
    dense = torch.zeros(300, 400)
    dense[::2, ::3] = torch.arange(1.0, 150 * 134 + 1).reshape(150, 134)
    return dense


def make_pieces(*shape):
    return [torch.full((length, *shape), float(length)) for length in range(10, 200)]


def make_narrow():
    """Return a nested tensor of the first rows of longer pieces, which has lengths."""
    starts = torch.arange(100)
    lengths = 1 + starts % 50
    padded = torch.arange(100.0 * 400 * 4).reshape(100, 400, 4)
    return torch.nested.narrow(padded, 1, starts, lengths, layout=torch.jagged)


def make_view():
    """Return a nested tensor of the first rows of a larger memory."""
    memory = torch.arange(40_000.0).reshape(-1, 4)
    offsets = torch.arange(0, 4_001, 100)
    return torch.nested.nested_tensor_from_jagged(memory[:4_000], offsets)


def make_columns():
    return torch.nested.nested_tensor(make_pieces(4), layout=torch.jagged).transpose(1, 2)


ARRAYS = {
    "subclass": lambda: np.arange(COUNT, dtype=float).view(Frames),
    "subclass with state": make_quantity,
    "masked": make_masked,
}
TENSORS = {
    "coo": lambda: make_dense().to_sparse(),
    "bf16": lambda: make_dense().to(torch.bfloat16).to_sparse(),
    "csr": lambda: make_dense().to_sparse_csr(),
    "csc": lambda: make_dense().to_sparse_csc(),
    "bsr": lambda: make_dense().to_sparse_bsr((2, 2)),
    "jagged": lambda: torch.nested.nested_tensor(make_pieces(4), layout=torch.jagged),
    "narrow": make_narrow,
    "view": make_view,
    "columns": make_columns,
    "nested": lambda: torch.nested.nested_tensor(make_pieces()),
    "rows": lambda: torch.nested.nested_tensor(make_pieces(4)),
    "two": lambda: torch.nested.nested_tensor([torch.ones(n, 200 - n) for n in range(10, 90)]),
}


def send(value):
    """Return what a reader gets of a message that is sent with its arrays."""
    parts = ray_internals.serialise_parts(conversions.to_their_arrays(value))
    return ray_internals.deserialise_parts(*parts, dict)


def measure(value):
    return alternatives.measure(value, {"bytes": 2**20})


@pytest.mark.parametrize("make", [*ARRAYS.values(), *TENSORS.values()])
def test_its_arrays_lie_outside_of_the_pickle(make):
    measured = measure({"x": make()})
    assert measured["as it is"]["inband_bytes"] > 40_000
    assert measured["its arrays"]["inband_bytes"] < 2_000


@pytest.mark.parametrize("form", ARRAYS)
def test_an_array_is_made_again_by_the_reader(form):
    value = ARRAYS[form]()
    (field,) = describe.describe({"x": value})
    assert (field["path"], field["form"]) == ("x", form)
    read = send({"x": value})["x"]
    assert type(read) is type(value)
    assert np.array_equal(np.asarray(read), np.asarray(value))
    assert getattr(read, "unit", "") == getattr(value, "unit", "")
    if form == "masked":
        assert np.array_equal(read.mask, value.mask) and read.fill_value == value.fill_value
        assert field["bytes"] == 9 * COUNT  # with its mask


@pytest.mark.filterwarnings("error:Sparse invariant checks")
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_is_made_again_by_the_reader(name):
    value = TENSORS[name]()
    (field,) = describe.describe({"x": value})
    nested_form = "nested" if value.layout == torch.jagged else "nested strided"
    assert field["form"] == (nested_form if value.is_nested else "sparse")
    read = send({"x": value})["x"]
    assert (read.dtype, read.layout) == (value.dtype, value.layout)
    if value.is_nested:
        pairs = zip(read.unbind(), value.unbind(), strict=True)
        assert all(torch.equal(new, old) for new, old in pairs)
        return
    assert torch.equal(read.to_dense(), value.to_dense())


@pytest.mark.parametrize(("make", "rows", "numbers"), [
    (make_narrow, sum(1 + number % 50 for number in range(100)), 101 + 100),
    (make_view, 4_000, 41),
    (make_columns, sum(range(10, 200)), 191),
])  # fmt: skip
def test_a_jagged_tensor_holds_the_rows_of_its_pieces_and_brings_all_memory_behind(
    make, rows, numbers
):
    value = make()
    (field,) = describe.describe(value)
    assert field["bytes"] == 4 * 4 * rows + 8 * numbers
    sent = alternatives.pickled_bytes(value)
    assert field["storage_bytes"] == pytest.approx(sent, abs=6_000)
    its_arrays = measure(value)["its arrays"]["bytes"]
    assert its_arrays == pytest.approx(4 * 4 * rows, abs=4_000)


@pytest.mark.parametrize("is_coalesced", [False, True])
def test_a_reader_can_ask_for_the_values_of_a_sparse_tensor(is_coalesced):
    indices = torch.arange(COUNT).expand(2, COUNT) // 2  # each of them twice
    shape = (COUNT, COUNT)
    value = torch.sparse_coo_tensor(indices, torch.ones(COUNT), shape, check_invariants=False)
    if is_coalesced:
        value = value.coalesce()
    read = send({"x": value})["x"]
    assert torch.equal(read.values(), value.coalesce().values())
    assert torch.equal(read.indices(), value.coalesce().indices())


@pytest.mark.parametrize("form", special_arrays.LISTS_OF_SCIPY)
def test_a_matrix_of_lists_is_measured_in_csr_format(form):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(300, 200, density=0.2, format=form, random_state=1)
    (field,) = describe.describe({"x": matrix})
    assert (field["type"], field["form"]) == (f"scipy.{form}_matrix", form)
    assert describe.find_own_pickling(matrix) is None
    measured = measure({"x": matrix})
    assert measured["its arrays"]["inband_bytes"] < 2_000 < measured["as it is"]["inband_bytes"]
    assert abs(send({"x": matrix})["x"] - matrix.tocsr()).nnz == 0


def test_matrices_of_arrays_and_plain_arrays_have_no_other_way():
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(300, 200, density=0.2, format="csr", random_state=1)
    for value in (matrix, matrix.tocoo(), np.arange(COUNT), torch.arange(COUNT)):
        assert not measure({"x": value})["its arrays"]
        assert not any(field.get("form") for field in describe.describe({"x": value}))


def test_the_pixels_of_images_are_the_field_that_brings_the_bytes():
    image_module = pytest.importorskip("PIL.Image")
    images = [image_module.fromarray(np.zeros((60, 50, 3), np.uint8)) for _ in range(8)]
    (field,) = describe.describe({"images": images})
    assert (field["path"], field["type"], field["form"]) == ("images[]", "PIL.Image", "image")
    assert field["bytes"] == 8 * 60 * 50 * 3
    assert describe.find_own_pickling(images) is None
    measured = measure(images)
    assert measured["its arrays"]["inband_bytes"] < 1_000 < measured["as it is"]["inband_bytes"]


def save_with_torch(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(("data", "form"), [
    (pickle.dumps(np.arange(COUNT)), "pickle"),
    (bytearray(pickle.dumps([1, 2], protocol=2)), "pickle"),
    (save_with_torch({"weight": torch.arange(COUNT)}), "torch.save"),
    (pickle.dumps(np.arange(COUNT))[:-1], ""),
    (b"\x80" * COUNT, ""),
    (b"PK\x03\x04" * COUNT, ""),
    (b"", ""),
])  # fmt: skip
def test_bytes_that_the_program_has_pickled_are_known_without_loading_them(data, form):
    (field,) = describe.describe({"checkpoint": data})
    assert field["form"] == form


def test_a_sparse_tensor_does_not_keep_others_from_being_measured():
    value = {"sparse": make_dense().to_sparse(), "dense": torch.arange(COUNT)}
    measured = measure(value)
    assert measured["numpy arrays"]["buffers"] >= 1


def test_a_tensor_of_a_dense_layout_is_no_other_one():
    assert special_arrays.form_of_tensor(torch, make_dense()) == ""
    dense = make_dense()
    assert special_arrays.to_arrays(dense) is dense


@pytest.mark.parametrize("form", ARRAYS)
def test_the_bytes_of_an_array_are_seen_to_compare_them(form):
    value = ARRAYS[form]()
    large = identity.LargeParts({"x": value})
    (part,) = large.parts
    assert identity.memory_of(part).nbytes == 8 * COUNT
