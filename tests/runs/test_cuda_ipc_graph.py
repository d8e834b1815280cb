# SPDX-License-Identifier: Apache-2.0
"""Run --transport cuda-ipc of the script and of the suite on CPUs, in a copy of the project with a fake GPU.

The graph, its channels, the communicator and the mailboxes are real; only the calls of CUDA are not (fake_gpu.py). It
says nothing about speed.
"""

import shutil

import pytest
from conftest import KILOBYTES, ROOT, copy_project
from in_process import DEMO
from runs.test_nccl_mock import (
    ACTOR,
    COMPILE_IN_SCRIPT,
    COMPILE_IN_SUITE,
    DRIVER,
    GRAPH,
    MODEL,
    NO_TEST_OF_GPUS,
    PLAN,
    SCRIPT,
)
from runs.test_transports import GRPO

IPC = "dataflow/transports/cuda_ipc.py"
START_MOCK = """
from unittest import mock

import ray
import torch
from fake_gpu import FakeDevice, place
from ray.experimental.channel.conftest import start_nccl_mock
from ray.experimental.util.types import Device


def start_mock(models):
    # It says that all tensors are on a GPU; its NCCL is not used.
    ray.get([model.start_mock.remote() for model in models])
    mock.patch("ray.experimental.channel.torch_tensor_type.TorchTensorType.device", Device.CPU).start()
    return None

"""
GPU = """
FLAGS.transport, FLAGS.gpus_per_model = "cuda-ipc", 0.3333
mock.patch("common.cluster.count_gpus", lambda: 1).start()
"""
FAKE_DEVICE = """
from functools import partial

from fake_gpu import FakeDevice

connect_actors = partial(connect_actors, device_class=FakeDevice)
"""
# The messages of the script, and those of the suite, lie in memory of the fake GPU.
POOL = """
from fake_gpu import place

make_pool_on_host = make_pool

def make_pool(sender, message_bytes, device):
    return [place(tensor) for tensor in make_pool_on_host(sender, message_bytes, device)]
"""
MEMORY = """
    def memory(self, task):
        packed_bytes = self.task_flow.message(task).packed_bytes
        return lambda slot: place(torch.zeros(packed_bytes, dtype=torch.uint8))
"""
ADDITIONS = (
    (SCRIPT, START_MOCK + GPU + MODEL + COMPILE_IN_SCRIPT + FAKE_DEVICE),
    ("common/timing.py", POOL),
    (IPC, FAKE_DEVICE),
    (GRAPH, START_MOCK + ACTOR + MEMORY + COMPILE_IN_SUITE),
    (DRIVER, NO_TEST_OF_GPUS),
    (PLAN, "validate.require_gpus = lambda transport, gpus, actors: 1"),
)
THROUGH_HOST = """
class ThroughHost:
    def __init__(self, model):
        self.model = model
        self.forward = self

    def bind(self, *inputs):
        self.output = self.model.forward.bind(*inputs)
        return self

    def with_tensor_transport(self, transport):
        return self.output.with_tensor_transport("shm")


bind_all_by_gpu = bind_nccl

def bind_nccl(query, policy, reference, reward, transport):
    return bind_all_by_gpu(query, policy, ThroughHost(reference), reward, transport)
"""
REWARD_DIES = """
class Model(Model):
    def pass_through(self, message):
        if self.name == "reward" and message.view(-1)[0].item() == 3:
            os._exit(1)
        return super().pass_through(message)
"""
GPU_MEMORY = "TorchTensorType over TorchTensorAcceleratorChannel, CUDA IPC"
SHARED_MEMORY = "TorchTensorType over BufferedSharedMemoryChannel"


def make_project(folder, *additions):
    project = copy_project(folder, *ADDITIONS, *additions)
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
    project = make_project(tmp_path, (SCRIPT, THROUGH_HOST))
    finished = run_model_script(
        run_script, project, "--iterations", "2", "--warmup", "0", *KILOBYTES
    )
    assert finished.code == 1
    assert "error: reward copied 0 bytes from reference by CUDA IPC, not " in finished.stderr


@pytest.mark.slow
def test_if_a_model_dies_its_sender_stops_to_wait_and_the_run_ends(run_script, tmp_path):
    project = make_project(tmp_path, (SCRIPT, REWARD_DIES))
    finished = run_model_script(
        run_script, project, "--iterations", "5", "--warmup", "0", *KILOBYTES
    )
    assert finished.code == 1 and finished.stderr == "error: reward died\n"
