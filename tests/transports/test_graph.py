"""The channels of a compiled graph."""

import pytest
from in_process import COLOCATED, DEMO

from dataflow.errors import RunFailed
from dataflow.transports.graph import check_data_paths

SHARED_MEMORY = "TorchTensorType over BufferedSharedMemoryChannel"
NCCL = "TorchTensorType over TorchTensorAcceleratorChannel"
UNTYPED = "SharedMemoryType over BufferedSharedMemoryChannel"


@pytest.mark.parametrize("flow", [DEMO, COLOCATED], ids=lambda flow: flow.name)
@pytest.mark.parametrize(("hint", "path"), [(None, UNTYPED), ("shm", SHARED_MEMORY), ("nccl", NCCL)])
def test_a_graph_with_another_channel_for_one_edge_is_rejected(flow, hint, path):
    expected = {}
    for edge in flow.edges:
        is_drivers = "driver" in (edge.source, edge.reader)  # never over NCCL
        expected[str(edge)] = SHARED_MEMORY if is_drivers and hint == "nccl" else path
    check_data_paths(expected, flow, hint, "this")
    for edge, data_path in expected.items():
        for other in {NCCL, SHARED_MEMORY, UNTYPED} - {data_path}:
            with pytest.raises(RunFailed, match=f"{edge} uses {other}, which is not the data path of this"):
                check_data_paths(expected | {edge: other}, flow, hint, "this")
