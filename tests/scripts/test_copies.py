# SPDX-License-Identifier: Apache-2.0
"""Test which copies the times of transports are compared with, with GPUs that are not there."""

import pytest
import torch

from common import SuiteError, copies
from common.sizes import EDGES, message_bytes

SIZES = message_bytes(4, 256)
BYTES = [SIZES[sender] for sender, _ in EDGES]


@pytest.fixture
def made(monkeypatch):
    """Make all tensors on the CPU; return the bytes and the device that each was asked for."""
    asked, ones = [], torch.ones

    def make(size, dtype, device="cpu", pin_memory=False):
        asked.append((size, "pinned" if pin_memory else device))
        return ones(size, dtype=dtype)

    monkeypatch.setattr(torch, "ones", make)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    return asked


def test_without_gpus_each_edge_is_one_copy_in_host_memory(made):
    assert len(copies.measure_memcpy(SIZES, passes=3)) == 3
    assert made == [(size, "cpu") for size in BYTES for _ in range(2)]
    assert copies.measure_host_copies(SIZES, "cpu", 0) == {}


def test_on_gpus_each_edge_is_one_copy_from_the_senders_to_the_readers(made):
    copies.measure_memcpy(SIZES, "cuda", 3, passes=1)  # three of the cluster, two of this machine
    places = [("cuda:0", "cuda:0"), ("cuda:0", "cuda:1"), ("cuda:0", "cuda:0"), ("cuda:1", "cuda:0"),
              ("cuda:0", "cuda:0")]  # fmt: skip
    expected = []
    for size, devices in zip(BYTES, places, strict=True):
        expected += [(size, device) for device in devices]
    assert made == expected


def test_models_that_share_one_gpu_are_compared_with_copies_on_it(made):
    copies.measure_memcpy(SIZES, "cuda", 1, passes=1)
    assert {device for _, device in made} == {"cuda:0"}


def test_copies_to_and_from_the_host_are_of_every_edge_and_of_each_kind_of_memory(
    made, monkeypatch
):
    copied, copy = [], torch.Tensor.copy_
    copied_to_new_memory = []

    def note_copy(target, source):
        copied.append(source.nbytes)
        return copy(target, source)

    monkeypatch.setattr(torch.Tensor, "copy_", note_copy)
    monkeypatch.setattr(
        torch.Tensor, "cpu", lambda source: copied_to_new_memory.append(source.nbytes)
    )
    seconds = copies.measure_host_copies(SIZES, "cuda", 2, passes=2)
    names = ["to host, pinned", "from host, pinned", "to host, pageable", "from host, pageable"]
    assert list(seconds) == [*names, "to host, new"]
    assert all(len(passes) == 2 for passes in seconds.values())
    assert copied_to_new_memory == BYTES * 2
    assert copied == BYTES * 3 * 4  # a pass that does not count, and two, of each
    of_senders = ["cuda:0", "cuda:0", "cuda:0", "cuda:1", "cuda:0"]
    assert [place for _, place in made] == ["pinned", *of_senders, "cpu", *of_senders]
    assert made[0][0] == made[6][0] == max(BYTES)


def test_a_torch_that_finds_no_gpu_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SuiteError, match=r"^torch finds no GPU: see nvidia-smi"):
        copies.measure_memcpy(SIZES, "cuda", 1)


def test_the_clock_of_a_copy_waits_for_both_gpus(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    copies.copy_seconds([copies.make_pair(8)])
    assert waited == [torch.device("cpu")] * 2  # before the clock, and inside of it
