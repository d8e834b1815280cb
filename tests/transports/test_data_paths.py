# SPDX-License-Identifier: Apache-2.0
"""The data paths that a compiled graph and the logs of NCCL and UCX show, and NCCL's settings on one GPU."""

from types import SimpleNamespace

import pytest
from conftest import reject_options
from in_process import COLOCATED, DEMO

from dataflow.errors import RunFailed
from dataflow.flows.catalogue import build_flow
from dataflow.plan import validate
from dataflow.records import machine
from dataflow.transports.graph import check_data_paths
from dataflow.transports.process_group import Rank, read_logged_paths

SHARED_MEMORY = "TorchTensorType over BufferedSharedMemoryChannel"
NCCL = "TorchTensorType over TorchTensorAcceleratorChannel"
UNTYPED = "SharedMemoryType over BufferedSharedMemoryChannel"


@pytest.mark.parametrize("flow", [DEMO, COLOCATED], ids=lambda flow: flow.name)
@pytest.mark.parametrize(
    ("hint", "path"), [(None, UNTYPED), ("shm", SHARED_MEMORY), ("nccl", NCCL)]
)
def test_a_graph_with_another_channel_for_one_edge_is_rejected(flow, hint, path):
    expected = {}
    for edge in flow.edges:
        is_drivers = "driver" in (edge.source, edge.reader)  # never over NCCL
        expected[str(edge)] = SHARED_MEMORY if is_drivers and hint == "nccl" else path
    check_data_paths(expected, flow, hint, "this")
    for edge, data_path in expected.items():
        for other in {NCCL, SHARED_MEMORY, UNTYPED} - {data_path}:
            with pytest.raises(
                RunFailed, match=f"{edge} uses {other}, which is not the data path of this"
            ):
                check_data_paths(expected | {edge: other}, flow, hint, "this")


def test_a_graph_without_any_message_over_nccl_is_rejected():
    round_trip = build_flow("round-trip", {}, None)
    paths = {str(edge): SHARED_MEMORY for edge in round_trip.edges}
    check_data_paths(paths, round_trip, "shm", "graph shm")
    with pytest.raises(RunFailed, match="no message of round-trip goes from GPU to GPU"):
        check_data_paths(paths, round_trip, "nccl", "graph nccl")


def test_a_flow_without_a_message_between_actors_is_rejected_before_the_start(monkeypatch):
    monkeypatch.setattr(validate, "count_gpus", lambda: 4)
    for name in ("graph nccl", "torch nccl", "torch nccl-one-gpu"):
        runtime, transport = name.split()
        error = reject_options(runtime, "--transport", transport, "--flow", "round-trip")
        assert error.startswith(f"{name}: round-trip has no message between two actors")


def test_a_process_that_sees_all_gpus_names_its_own(make_plan):
    plan = make_plan("torch", "--transport", "gloo", device="cuda", gpus=2)
    found = [Rank.find_device(None, plan, name) for name in plan.worker_names]
    assert list(map(str, found)) == ["cuda:0", "cuda:0", "cuda:1", "cuda:0"]


def test_nccl_is_asked_for_the_version_that_runs(monkeypatch):
    def get_version(code):
        code._obj.value = 23007

    loaded = "7f00-7f01 r-xp 0 00:00 0 /site/nvidia/nccl/lib/libnccl.so.2\n"
    monkeypatch.setattr(machine.Path, "read_text", lambda path: loaded)
    monkeypatch.setattr(
        machine.ctypes, "CDLL", lambda name: SimpleNamespace(ncclGetVersion=get_version)
    )
    assert machine.loaded_nccl_version() == (2, 30, 7)
    assert machine.describe_nccl() == "2.30.7"
    monkeypatch.setattr(machine.Path, "read_text", lambda path: "7f00-7f01 r-xp 0 00:00 0\n")
    assert machine.loaded_nccl_version() is None


LOGS = {  # by library, with {} for the data path
    "nccl": """\
host:101:101 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
host:101:140 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via {}
host:101:140 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
""",
    "ucx": """\
[1] [vm:1:0]   | remote memory read by ucp_get*(multi) into host memory from host |
[1] [vm:1:0]   +--------+-------------+-------------+
[1] [vm:1:0]   | Range  | Description |   Config    |
[1] [vm:1:0]   +--------+-------------+-------------+
[1] [vm:1:0]   | 0..inf | zero-copy   | {} |
[1] [vm:1:0]   +--------+-------------+-------------+
""",
}


@pytest.mark.parametrize(("library", "paths", "other"), [
    ("nccl", ["NET/Socket/0", "P2P/IPC", "SHM/direct/direct"], "NCCL INFO Bootstrap: Using lo:127.0.0.1\n"),
    ("ucx", ["cma/memory", "tcp/lo"], LOGS["ucx"].replace("read by ucp_get*", "message by ucp_am_send*")),
])  # fmt: skip
def test_each_data_path_in_the_logs_of_a_library_is_returned_once(tmp_path, library, paths, other):
    for pid, path in enumerate(paths * 2):
        (tmp_path / f"{library}.host.{pid}.log").write_text(LOGS[library].format(path))
    (tmp_path / f"{library}.host.7.log").write_text(other)
    (tmp_path / "rendezvous").write_text("0 via Nothing/else")
    assert read_logged_paths(tmp_path, library) == paths
