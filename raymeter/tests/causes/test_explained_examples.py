# SPDX-License-Identifier: Apache-2.0
"""What `raymeter explain` advises keeps the value of a message: the examples are run, as they are."""

import re
from importlib import resources
from types import SimpleNamespace

import numpy
import pytest

TEXT = resources.files("raymeter").joinpath("report/causes.md").read_text(encoding="utf-8")


def section_of(cause: str) -> str:
    """Return the text of a cause."""
    return TEXT.partition(f"### {cause}\n")[2].partition("\n### ")[0]


def example_of(cause: str) -> str:
    """Return the code of the example of a cause below "# after"."""
    code = re.search(r"```python\n(.*?)```", section_of(cause), re.DOTALL)
    assert code is not None
    return code[1].partition("# after\n")[2]


def run_example(cause: str, **names) -> dict:
    """Return the names of the reader, which gets what the sender returns or puts in an example."""
    sender, _, reader = example_of(cause).partition("...\n")
    *first, last = sender.strip().splitlines()
    exec("\n".join(first), names)
    sent = eval(last.removeprefix("return "), names)
    names["ray"] = SimpleNamespace(get=lambda ref: ref)
    names["ref"] = sent
    exec(reader, names)
    return names


@pytest.mark.parametrize("is_hard", [True, False])
def test_a_masked_array_keeps_its_fill_value_and_its_hard_mask(is_hard):
    masked = numpy.ma.MaskedArray([1.0, 2.0, 3.0], [0, 1, 0], fill_value=0.0, hard_mask=is_hard)
    read = run_example("masked arrays in the pickle", numpy=numpy, masked=masked)["masked"]
    assert read.filled().sum() == 4.0
    assert read.hardmask == is_hard
    read[1] = 5.0
    assert read.mask[1] == is_hard


def test_a_tensor_that_numpy_does_not_know_is_the_same_in_the_reader():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0, dtype=torch.bfloat16).reshape(2, 3).T.requires_grad_()
    text = section_of("tensors in the pickle")
    sender = re.search(r"`(tensor\S*view\(torch.int16\)\S*)`", text)
    reader = re.search(r"`(torch\S*view\(torch.bfloat16\))`", text)
    assert sender is not None and reader is not None
    sent = eval(sender[1], {"torch": torch, "tensor": tensor})
    ray = SimpleNamespace(get=lambda ref: ref)
    read = eval(reader[1], {"torch": torch, "ray": ray, "ref": sent})
    assert read.dtype == torch.bfloat16
    assert torch.equal(read, tensor.detach())
