"""What `raymeter explain` advises keeps the value of a message: the examples are run, as they are."""

import re
from importlib import resources
from types import SimpleNamespace

import numpy
import pytest

TEXT = resources.files("raymeter").joinpath("report/causes.md").read_text(encoding="utf-8")


def example_of(cause: str, number: int) -> str:
    """Return the code of an example of a section below "# after"."""
    section = TEXT.partition(f"### {cause}\n")[2].partition("\n### ")[0]
    codes = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return codes[number].partition("# after\n")[2]


def run_example(cause: str, number: int = 0, **names) -> dict:
    """Return the names of the reader, which gets what the sender returns or puts in an example."""
    sender, _, reader = example_of(cause, number).partition("...\n")
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
    names = {"torch": torch, "tensor": tensor}
    read = run_example("tensors in the pickle", number=1, **names)["tensor"]
    assert read.dtype == torch.bfloat16
    assert torch.equal(read, tensor.detach())
