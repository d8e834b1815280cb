# SPDX-License-Identifier: Apache-2.0
"""Messages of NCCL are announced by gloo: a reader posts no receive that its sender has not begun to answer."""

from types import SimpleNamespace

import pytest
import torch
from in_process import DEMO

from dataflow.endpoints import tensors
from dataflow.flows.flow import DRIVER
from dataflow.transports import process_group
from dataflow.transports.process_group import Rank

EDGE = next(edge for edge in DEMO.edges if DRIVER not in (edge.source, edge.reader))
TO_DRIVER = next(edge for edge in DEMO.edges if edge.reader == DRIVER)
GPU = "meta"  # a device that every machine has


@pytest.fixture
def used_devices(monkeypatch):
    """Return where the tensors lie that are sent or received, in their order."""
    used = []

    def note(tensor, rank, tag):
        used.append(tensor.device.type)

    monkeypatch.setattr(process_group, "dist", SimpleNamespace(isend=note, recv=note))
    return used


def make_rank(device, edge):
    """Return a rank that sends and reads the messages of one edge only, in a run with tensors on this device."""
    rank = Rank.__new__(Rank)
    rank.device = torch.device(device)
    rank.sent_flow = SimpleNamespace(edges_from=lambda task: [edge])
    rank.ranks = {edge.source: 1, edge.reader: 2}
    rank.tags = {edge: 0}
    rank.groups = {}
    payload = tensors.unwritten(edge.message, rank.device_of(edge))
    rank.receive_buffers = {edge: iter([tensors.to_tensor_list(payload, edge.message)])}
    return rank


@pytest.mark.parametrize(
    ("device", "edge", "expected"),
    [
        (GPU, EDGE, ["cpu", GPU]),
        (GPU, TO_DRIVER, ["cpu"]),  # by gloo, which needs no announcement
        ("cpu", EDGE, ["cpu"]),
    ],
    ids=["between GPUs", "to the driver", "on CPUs"],
)
def test_a_message_between_gpus_is_announced_before_it_is_sent_and_received(
    used_devices, device, edge, expected
):
    """A receive occupies the GPU, and the verification before the next iteration waited for it without end."""
    rank = make_rank(device, edge)
    rank.receive_message(edge, process_group.dist.recv)
    assert used_devices == expected
    used_devices.clear()
    rank.send(edge.source, tensors.unwritten(edge.message, rank.device_of(edge)))
    assert used_devices == expected
