# SPDX-License-Identifier: Apache-2.0
"""How messages are bound for cuda-ipc, which of them it must copy, and that another channel fails the run."""

from types import SimpleNamespace

import pytest
from conftest import reject_options
from in_process import COLOCATED, DEMO, FIELDS
from transports.test_data_paths import NCCL, SHARED_MEMORY

from common.cuda_ipc import CudaIpcCommunicator
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.plan import validate
from dataflow.transports import graph
from dataflow.transports.cuda_ipc import bytes_by_pair


class FakeActor:
    """An actor whose methods can be bound. Nodes remember their transport."""

    def __getattr__(self, method):
        return SimpleNamespace(bind=lambda task, *_: FakeNode(method, task))


class FakeNode:
    def __init__(self, method, task):
        self.name = (method, task)
        self.transport = None

    def with_tensor_transport(self, transport):
        self.transport = transport


@pytest.mark.parametrize("hint", ["nccl", CudaIpcCommunicator({})], ids=["nccl", "cuda-ipc"])
def test_only_messages_that_another_actor_reads_are_sent_from_gpu_to_gpu(monkeypatch, hint):
    """Ray refuses an accelerator for a message that stays on its actor, and the driver has no GPU."""
    bound = {}
    bind_task = graph.bind_task

    def remember(flow, task, *rest):
        bound[task.name] = bind_task(flow, task, *rest)
        return bound[task.name]

    monkeypatch.setattr(graph, "bind_task", remember)
    monkeypatch.setattr(graph, "MultiOutputNode", list)
    stays = Flow(
        "stays",
        "stays",
        FIELDS,
        (Task("one", (DRIVER,), FIELDS), Task("inner", ("one",), FIELDS, actor="one"),
         Task("last", ("inner",), FIELDS, actor="one"), Task("two", ("last",), FIELDS)),
        returns=("two",),
    )  # fmt: skip
    graph.bind(stays, {"one": FakeActor(), "two": FakeActor()}, hint)
    transports = {name: node.transport for name, node in bound.items()}
    assert transports == {"one": "shm", "inner": "shm", "last": hint, "two": "shm"}


def test_the_bytes_that_cuda_ipc_copies_are_those_between_actors_once_per_reading_actor():
    of_edges = {str(edge): edge.bytes for edge in DEMO.edges}
    assert bytes_by_pair(DEMO) == {
        ("policy", "reference"): of_edges["policy -> reference"],
        ("policy", "reward"): of_edges["policy -> reward"],
        ("reference", "reward"): of_edges["reference -> reward"],
    }
    tensors = sum(field.bytes for field in FIELDS.fields if not field.is_python)
    # "two" reads the messages of two tasks of "one", and "one" gets one of "two". The last task returns a result.
    assert bytes_by_pair(COLOCATED) == {("one", "two"): 2 * tensors, ("two", "one"): tensors}
    twice = (
        Task("one", (DRIVER,), FIELDS),
        Task("left", ("one",), FIELDS, actor="two"),
        Task("right", ("one",), FIELDS, actor="two"),
    )
    assert bytes_by_pair(Flow("twice", "twice", FIELDS, twice, ("left", "right"))) == {
        ("one", "two"): tensors
    }


def test_a_flow_without_messages_between_actors_is_rejected(monkeypatch):
    monkeypatch.setattr(validate, "count_gpus", lambda: 1)
    error = reject_options("graph", "--transport", "cuda-ipc", "--flow", "round-trip")
    assert error.startswith("graph cuda-ipc: round-trip has no message between two actors")


def test_a_message_between_actors_over_shared_memory_is_rejected():
    communicator = CudaIpcCommunicator({})
    paths = {}
    for edge in DEMO.edges:
        paths[str(edge)] = SHARED_MEMORY if DRIVER in (edge.source, edge.reader) else NCCL
    graph.check_data_paths(paths, DEMO, communicator, "cuda-ipc")
    for edge, path in paths.items():
        other = SHARED_MEMORY if path == NCCL else NCCL
        with pytest.raises(RunFailed, match=f"{edge} uses {other}, which is not the data path of"):
            graph.check_data_paths(paths | {edge: other}, DEMO, communicator, "cuda-ipc")
