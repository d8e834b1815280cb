# SPDX-License-Identifier: Apache-2.0
"""Types whose arrays Ray copies into the pickle: what they hold, and how their arrays are sent beside it.

Ray keeps the buffers of plain numpy arrays outside of the pickle. The state of a subclass is pickled as bytes (its
`__reduce__` comes from numpy.ndarray, without protocol 5), and so are the lists of a scipy matrix in LIL or DOK format,
the parts of a sparse or nested tensor of torch, and an image of PIL. Each has a few arrays that say the same.
"""

import sys
from fractions import Fraction

LISTS_OF_SCIPY = ("lil", "dok")  # formats that keep Python lists or dicts
INDEX_BYTES = 4
PICKLING = ("__reduce__", "__reduce_ex__", "__setstate__")
COMPRESSED_ROWS = ("sparse_csr", "sparse_bsr")


class Rebuilt:
    """The arrays of a value, which are made that value again when they are read, so that this is measured, too."""

    def __init__(self, rebuild, *parts):
        self.rebuild = rebuild
        self.parts = parts

    def __reduce__(self):
        return self.rebuild, self.parts


def form_of_array(numpy, part):
    """Return "masked" or "subclass" for an array that is pickled with its bytes; "" for others.

    "subclass with state" has its own way of pickling, and may have attributes that travel with it.
    """
    kind = type(part)
    if kind is numpy.ndarray or part.dtype.hasobject:
        return ""
    if isinstance(part, numpy.ma.MaskedArray):
        return "masked"
    has_own = any(getattr(kind, name) != getattr(numpy.ndarray, name) for name in PICKLING)
    return "subclass with state" if has_own else "subclass"


def array_bytes(numpy, part):
    """Return the bytes of an array, with those of its mask."""
    if not isinstance(part, numpy.ma.MaskedArray):
        return part.nbytes
    return part.nbytes + numpy.ma.getmask(part).nbytes


def form_of_tensor(torch, part):
    """Return "nested", "nested strided" or "sparse" for a tensor without one strided memory; "" for others.

    Only a jagged one has offsets: "nested" is that. The pieces of a nested tensor with torch's default layout are
    strided, and may differ in each dimension.
    """
    if part.is_nested:
        return "nested" if part.layout == torch.jagged else "nested strided"
    return "" if part.layout == torch.strided else "sparse"


def tensor_bytes(torch, part):
    """Return the bytes of the values of a sparse or nested tensor, and of their indices or offsets.

    Values of a jagged tensor that are in none of its pieces do not count.
    """
    if part.is_nested and part.layout == torch.strided:
        return part.numel() * part.element_size()
    if part.is_nested:
        values, *others = jagged_parts(part)
        return int(share_in_pieces(part) * values.nbytes) + sum(tensor.nbytes for tensor in others)
    _, tensors = split_tensor(torch, part.detach())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def storage_bytes(torch, part):
    """Return the bytes of the memory behind a jagged tensor, all of which is pickled; 0 for others."""
    if not part.is_nested or part.layout != torch.jagged:
        return 0
    return sum(tensor.untyped_storage().nbytes() for tensor in jagged_parts(part))


def jagged_parts(part):
    """Return the values of a jagged tensor, its offsets, and the lengths of its pieces if there are gaps between."""
    lengths = part.lengths()
    parts = [part.values().detach(), part.offsets()]
    return parts if lengths is None else [*parts, lengths]


def jagged_dimension(part):
    """Return which dimension of a jagged tensor is another one in each piece: torch has a symbol as its size."""
    sizes = [type(size) is int for size in part.shape]
    return sizes.index(False)


def share_in_pieces(part):
    """Return the share of the values of a jagged tensor that are in its pieces: without lengths, all are."""
    lengths = part.lengths()
    rows = part.values().shape[jagged_dimension(part) - 1]
    if lengths is None or not rows:
        return 1
    return Fraction(int(lengths.sum()), rows)


def to_arrays(part):
    """Return the arrays of a value that is pickled with its bytes, as a Rebuilt; others as they are.

    A matrix of lists becomes one in CSR format, and an image an array: they are not made again.
    """
    for library, convert in CONVERSIONS.items():
        module = sys.modules.get(library)
        if module is None:
            continue
        converted = convert(module, part)
        if converted is not part:
            return converted
    return part


def convert_array(numpy, part):
    """Return the plain arrays of an array that is masked or of a subclass, as a Rebuilt; others as they are."""
    if not isinstance(part, numpy.ndarray):
        return part
    form = form_of_array(numpy, part)
    if form == "masked":
        mask = numpy.ascontiguousarray(numpy.ma.getmaskarray(part))
        data = numpy.ascontiguousarray(part.data)
        return Rebuilt(join_mask, data, mask, part.fill_value)
    if not form:
        return part
    plain = numpy.ascontiguousarray(part).view(numpy.ndarray)
    state = dict(vars(part)) if form == "subclass with state" else {}
    return Rebuilt(view_as, plain, type(part), state)


def join_mask(data, mask, fill_value):
    numpy = sys.modules["numpy"]
    return numpy.ma.MaskedArray(data, mask, fill_value=fill_value, copy=False)


def view_as(plain, kind, state):
    """Return an array as one of a subclass, with these attributes."""
    array = plain.view(kind)
    if state:
        vars(array).update(state)
    return array


def is_lists_of_scipy(sparse, part):
    """Return whether a value is a matrix of scipy that keeps Python lists or dicts."""
    return sparse.issparse(part) and part.format in LISTS_OF_SCIPY


def matrix_bytes(part):
    """Return the bytes of the values of a sparse matrix, and of their row and column."""
    return part.nnz * (part.dtype.itemsize + 2 * INDEX_BYTES)


def convert_matrix(sparse, part):
    """Return a matrix of lists in CSR format, whose three arrays Ray keeps outside of the pickle."""
    return part.tocsr() if is_lists_of_scipy(sparse, part) else part


def convert_tensor(torch, part):
    """Return the arrays of a sparse or nested tensor, as a Rebuilt; others as they are. Raise TypeError on a GPU."""
    if not isinstance(part, torch.Tensor) or not form_of_tensor(torch, part):
        return part
    plain = part.detach()
    if plain.layout == torch.sparse_coo:
        plain = plain.coalesce()  # indices() and values() of others raise
    rebuild, tensors = split_tensor(torch, plain)
    arrays = [to_numpy(torch, tensor) for tensor in tensors]
    shape = shape_for_reader(torch, part)
    layout = str(part.layout).replace("torch.", "")
    dtype = str(part.dtype).replace("torch.", "")
    return Rebuilt(rebuild, shape, layout, dtype, *arrays)


def shape_for_reader(torch, part):
    """Return what a reader needs to know besides the arrays: the shape, or of a jagged tensor its jagged dimension."""
    if not part.is_nested:
        return tuple(part.shape)
    return jagged_dimension(part) if part.layout == torch.jagged else None


def split_tensor(torch, part):
    """Return the function that makes a sparse or nested tensor again, and its parts: the values come first."""
    if part.layout == torch.sparse_coo:
        return join_coordinates, [part._values(), part._indices()]  # if it is not coalesced, too
    if not part.is_nested:
        return join_compressed, [part.values(), *compressed_indices(part)]
    if part.layout == torch.jagged:
        return join_jagged, split_jagged(part)
    return split_pieces(torch, part.unbind())


def split_jagged(part):
    """Return the values of a jagged tensor that are in its pieces, and their offsets: gaps are left out."""
    if part.lengths() is not None:
        part = part.contiguous()
    return [part.values(), part.offsets()]


def split_pieces(torch, pieces):
    """Return the same for the pieces of a nested tensor with strided layout: all values, and the shape of each."""
    sizes = torch.tensor([list(piece.shape) for piece in pieces])
    return join_pieces, [torch.cat([piece.reshape(-1) for piece in pieces]), sizes]


def compressed_indices(part):
    """Return the compressed and the plain indices of a tensor in CSR, CSC, BSR or BSC layout."""
    if str(part.layout).endswith(COMPRESSED_ROWS):
        return part.crow_indices(), part.col_indices()
    return part.ccol_indices(), part.row_indices()


def to_numpy(torch, tensor):
    plain = tensor.contiguous()
    return plain.view(torch.int16).numpy() if plain.dtype == torch.bfloat16 else plain.numpy()


def to_tensor(array, dtype):
    """Return an array as a tensor of a dtype with the same number of bytes."""
    torch = sys.modules["torch"]
    return torch.from_numpy(array).view(getattr(torch, dtype))


def join_coordinates(shape, layout, dtype, values, indices):
    """Return a coalesced tensor in COO layout, of which readers can ask the values. It needs torch 2.1."""
    torch = sys.modules["torch"]
    indices = torch.from_numpy(indices)
    values = to_tensor(values, dtype)
    return torch.sparse_coo_tensor(
        indices, values, shape, check_invariants=False, is_coalesced=True
    )


def join_compressed(shape, layout, dtype, values, compressed, plain):
    torch = sys.modules["torch"]
    return torch.sparse_compressed_tensor(
        torch.from_numpy(compressed),
        torch.from_numpy(plain),
        to_tensor(values, dtype),
        shape,
        layout=getattr(torch, layout),
        check_invariants=False,  # else torch warns the user
    )


def join_jagged(dimension, layout, dtype, values, offsets):
    torch = sys.modules["torch"]
    offsets = torch.from_numpy(offsets)
    tensor = to_tensor(values, dtype)
    if dimension == 1:  # older versions of torch have no other one
        return torch.nested.nested_tensor_from_jagged(tensor, offsets)
    return torch.nested.nested_tensor_from_jagged(tensor, offsets, jagged_dim=dimension)


def join_pieces(shape, layout, dtype, values, sizes):
    """Return a nested tensor: its pieces are copied together."""
    torch = sys.modules["torch"]
    lengths = sizes.prod(axis=1).tolist()
    flat = torch.split(to_tensor(values, dtype), lengths)
    pieces = [piece.reshape(size) for piece, size in zip(flat, sizes.tolist(), strict=True)]
    return torch.nested.as_nested_tensor(pieces)


def image_bytes(part):
    """Return the bytes of the pixels of an image, for modes with one byte per band."""
    width, height = part.size
    return width * height * len(part.getbands())


def convert_image(image_module, part):
    if not isinstance(part, image_module.Image) or "numpy" not in sys.modules:
        return part
    return sys.modules["numpy"].asarray(part)


CONVERSIONS = {
    "numpy": convert_array,
    "scipy.sparse": convert_matrix,
    "torch": convert_tensor,
    "PIL.Image": convert_image,
}
