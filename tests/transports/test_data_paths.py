"""The data paths that a compiled graph and the logs of NCCL and UCX show, and NCCL's settings on one GPU."""

import pytest
from in_process import COLOCATED, DEMO

from dataflow.errors import RunFailed
from dataflow.transports.graph import check_data_paths
from dataflow.transports.process_group import read_logged_paths

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
