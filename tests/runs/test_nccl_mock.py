"""Check the graph's NCCL edges over Ray's mock of NCCL (nccl_mock_graph.py)."""

import json
from pathlib import Path

PROGRAM = Path(__file__).with_name("nccl_mock_graph.py")


def test_edges_between_actors_use_nccl_and_deliver_the_right_bytes(run_script):
    finished = run_script(PROGRAM)
    assert finished.code == 0, finished.stderr
    result = json.loads(finished.output.read_text())
    assert result["wrong_bytes"] == [0] * 7
    nccl = "TorchTensorType over TorchTensorAcceleratorChannel"
    shared_memory = "TorchTensorType over BufferedSharedMemoryChannel"
    assert result["data_paths"] == {
        "driver -> policy": shared_memory,
        "policy -> reference": nccl,
        "policy -> reward": nccl,
        "reference -> reward": nccl,
        "reward -> driver": shared_memory,
    }
