import json
from pathlib import Path

PROGRAM = Path(__file__).with_name("nccl_mock_graph.py")


def test_edges_between_roles_go_over_nccl_and_bring_the_right_bytes(run_script):
    finished = run_script(PROGRAM)
    assert finished.code == 0, finished.stderr
    found = json.loads(finished.output.read_text())
    assert found["wrong_bytes"] == [0] * 7
    over_nccl = "TorchTensorType over TorchTensorAcceleratorChannel"
    over_shared_memory = "TorchTensorType over BufferedSharedMemoryChannel"
    assert found["path"] == {
        "driver -> policy": over_shared_memory,
        "policy -> reference": over_nccl,
        "policy -> reward": over_nccl,
        "reference -> reward": over_nccl,
        "reward -> driver": over_shared_memory,
    }


def test_ray_does_not_compile_a_method_that_takes_two_nccl_edges(run_script):
    """Why the graph has pass_through. Where this fails, Ray can do without, and the script should."""
    finished = run_script(PROGRAM, "--direct")
    assert finished.code != 0
    assert finished.stderr.splitlines()[-1] == "AssertionError"
    assert "dag_node_operation.py" in finished.stderr
    assert not finished.output.exists()
