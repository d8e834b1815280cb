# SPDX-License-Identifier: Apache-2.0
"""Test on which GPU the suite's messages lie, and where it takes memory to verify them, without Ray and a GPU."""

import inspect
from types import SimpleNamespace

import torch
from conftest import ROOT
from in_process import DEMO
from ray.experimental.rdt.cuda_ipc_transport import CudaIpcTransport, CudaIpcTransportMetadata

from dataflow.endpoints import actor, inbox
from dataflow.transports import store
from dataflow.transports.process_group import Rank


class Message:
    """A message that knows where it lies."""

    def __init__(self, place):
        self.place = place

    def to(self, device):
        return Message(device)


class FakeActor:
    """Answers with a message in host memory, as it is after its way through the store, and notes where inputs were."""

    def __init__(self, seen):
        def forward_step(task, *inputs):
            seen.extend(message.place for message in inputs)
            return Message("host")

        self.forward_step = SimpleNamespace(remote=forward_step)


def test_the_drivers_queue_holds_each_message_on_the_drivers_gpu(monkeypatch):
    monkeypatch.setattr(
        store, "ray", SimpleNamespace(put=lambda value: value, get=lambda value: value)
    )
    seen = []
    workers = SimpleNamespace(
        start=lambda: None,
        sent_flow=DEMO,
        plan=SimpleNamespace(device="cuda"),
        actors={name: FakeActor(seen) for name in DEMO.actors},
    )
    connection = store.by_driver_queue(workers)
    results = connection.collect(connection.submit(Message("cuda")))
    seen += [message.place for message in results]
    assert seen == ["cuda"] * len(DEMO.edges)


def test_a_rank_verifies_in_memory_of_its_own_gpu(make_plan, monkeypatch, tmp_path):
    """Its own GPU is not the first one, which the thread that answers calls would use."""
    asked = []

    def make_on_cpu(message, device):
        asked.append(str(device))
        return like(message, "cpu")

    like = inbox.like
    monkeypatch.setattr(inbox, "like", make_on_cpu)
    monkeypatch.setattr(inbox.Inbox, "verify", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(actor, "Outbox", lambda *_, **__: SimpleNamespace(digests={}))
    flags = ("--transport", "gloo", "--iteration-bytes", "1MiB")
    plan = make_plan("torch", *flags, device="cuda", gpus=2, run_folder=tmp_path)
    rank = Rank(plan, "reference", "file:///nowhere")
    rank.try_on_unsent_memory()
    assert asked == ["cuda:1"]


def test_ray_destroys_the_event_of_a_message_over_cuda_ipc_as_the_page_says():
    """If Ray keeps it, the page need not warn any more."""
    source = inspect.getsource(CudaIpcTransport.extract_tensor_transport_metadata)
    assert "event = torch.cuda.Event(interprocess=True)" in source
    assert source.count("event.ipc_handle()") == 1
    kept = [field for field in CudaIpcTransportMetadata.__annotations__ if "event" in field]
    assert kept == ["cuda_ipc_event_ipc_handle"]  # bytes
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert "invalid resource handle" in page
