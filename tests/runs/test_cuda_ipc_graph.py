"""Run --transport cuda-ipc of the script and of the suite on CPUs, in a copy of the project with a fake GPU.

The graph, its channels, the communicator and the mailboxes are real; only the calls of CUDA are not (fake_gpu.py). It
says nothing about speed.
"""

import shutil

import pytest
from conftest import KILOBYTES, ROOT, copy_project
from in_process import DEMO
from runs.test_nccl_mock import DRIVER, GRAPH, MODEL, PLAN, SCRIPT
from runs.test_transports import GRPO

IPC = "dataflow/transports/cuda_ipc.py"
COMMUNICATOR = "common/cuda_ipc.py"
IMPORTS = """
from unittest import mock

import ray
import torch
from fake_gpu import place
from ray.experimental.channel.conftest import start_nccl_mock
from ray.experimental.util.types import Device


def start_mock(models):
    # It says that all tensors are on a GPU; its NCCL is not used.
    ray.get([model.start_mock.remote() for model in models])
    mock.patch("ray.experimental.channel.torch_tensor_type.TorchTensorType.device", Device.CPU).start()

"""
GPU = """
FLAGS.transport, FLAGS.gpus_per_model = "cuda-ipc", 0.3333
mock.patch("common.cluster.count_gpus", lambda: 1).start()
"""
MEMORY = """    def memory(self, task):
        packed_bytes = self.task_flow.message(task).packed_bytes
        return lambda slot: place(torch.zeros(packed_bytes, dtype=torch.uint8))

"""
CHANGES = (
    (SCRIPT, "\nimport ray\n", IMPORTS + GPU),
    (SCRIPT, "    def pass_through(self", MODEL),
    (SCRIPT, "            graph, communicator =",
     "            start_mock(models)\n            graph, communicator ="),
    ("common/timing.py", "[tensor.to(device) for tensor in tensors]", "[*map(place, tensors)]"),
    ("common/timing.py", "\nimport torch\n", "\nimport torch\nfrom fake_gpu import place\n"),
    (COMMUNICATOR, "from common.cuda_device import HANDLE_BYTES, CudaDevice, Device\n",
     "from common.cuda_device import HANDLE_BYTES, Device\nfrom fake_gpu import FakeDevice as CudaDevice\n"),
    (GRAPH, "\nimport ray\n", IMPORTS),
    (GRAPH, "    def pass_through(self", MEMORY + MODEL),
    (GRAPH, "    workers.run_in_all(prepare_channels)",
     "    start_mock(workers.actors.values())\n    workers.run_in_all(prepare_channels)"),
    (DRIVER, "if plan.gpus > torch.cuda.device_count():", "if False:"),
    (PLAN, "validate.require_gpus(transport, gpus, len(plan.task_flow.actors))", "1"),
)  # fmt: skip
GPU_MEMORY = "TorchTensorType over TorchTensorAcceleratorChannel, CUDA IPC"
SHARED_MEMORY = "TorchTensorType over BufferedSharedMemoryChannel"


def make_project(folder, *changes):
    project = copy_project(folder, *CHANGES, *changes)
    shutil.copy(ROOT / "tests" / "fake_gpu.py", project)
    return project


def run_model_script(run_script, project, *flags):
    # In the folder of the project, because the workers of Ray import from there first.
    return run_script(
        project / SCRIPT, "--transport", "shm", "--device", "cpu", *flags, project=project
    )


def run_suite(run_script, project, *flags):
    return run_script(
        "graph", "--transport", "cuda-ipc", "--device", "cpu", *flags, project=project
    )


@pytest.mark.slow
def test_edges_between_actors_use_cuda_ipc_and_deliver_the_right_bytes(run_script, tmp_path):
    project = make_project(tmp_path)
    flags = ("--iterations", "6", "--warmup", "0")
    finished = run_model_script(run_script, project, *flags, *KILOBYTES)
    assert (finished.code, finished.stderr) == (0, "") and finished.stdout.startswith("cuda-ipc: ")
    # Messages of many tensors, and as many iterations in flight as the flow holds.
    finished = run_suite(
        run_script, project, *flags, *GRPO, "--in-flight", "4", "--check-every", "6"
    )
    assert (finished.code, finished.stderr) == (0, "")
    run = finished.run
    assert (run.status, run.wrong_bytes, len(run.seconds)) == ("ok", 0, 6)
    assert run.readers_own_a_copy
    edges = [str(edge) for edge in DEMO.edges]
    assert run.data_paths == {
        edge: SHARED_MEMORY if "driver" in edge else GPU_MEMORY for edge in edges
    }


@pytest.mark.slow
def test_a_message_that_takes_another_way_fails_the_run(run_script, tmp_path):
    """Its bytes are right, and yet it is another data path."""
    through_host = (
        SCRIPT,
        "reference.forward.bind(policy_output).with_tensor_transport(transport)",
        'reference.forward.bind(policy_output).with_tensor_transport("shm")',
    )
    project = make_project(tmp_path, through_host)
    finished = run_model_script(
        run_script, project, "--iterations", "2", "--warmup", "0", *KILOBYTES
    )
    assert finished.code == 1
    assert "error: reward copied 0 bytes from reference by CUDA IPC, not " in finished.stderr


@pytest.mark.slow
def test_if_a_model_dies_its_sender_stops_to_wait_and_the_run_ends(run_script, tmp_path):
    begin = '"""Return a message as it is: see bind_nccl."""'
    die = 'if self.name == "reward" and message.view(-1)[0].item() == 3:\n            os._exit(1)'
    project = make_project(tmp_path, (SCRIPT, begin, f"{begin}\n        {die}"))
    finished = run_model_script(
        run_script, project, "--iterations", "5", "--warmup", "0", *KILOBYTES
    )
    assert finished.code == 1 and finished.stderr == "error: reward died\n"
