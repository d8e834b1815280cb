# SPDX-License-Identifier: Apache-2.0
"""Run --transport nccl of the script and of the suite without GPUs, in a copy of the project with Ray's mock of NCCL.

It shows that the graph compiles, that its messages are right, and which channels its edges use; it says nothing about
speed.
"""

import pytest
from conftest import KILOBYTES, copy_project
from in_process import DEMO

START_MOCK = """
from itertools import combinations
from unittest import mock

import ray
import torch
from ray.experimental.channel.conftest import Barrier, start_nccl_mock
from ray.experimental.util.types import Device


def start_mock(models):
    names = [f"barrier-{low}-{high}" for low, high in combinations(range(3), 2)]  # two ranks meet at each of them
    barriers = [Barrier.options(name=name).remote() for name in names]
    ray.get([model.start_mock.remote() for model in models])
    # The mock's actors report their tensors on a GPU, and the driver takes them as they are.
    mock.patch("ray.experimental.channel.torch_tensor_type.TorchTensorType.device", Device.CPU).start()
    return barriers
"""
GPUS = """
FLAGS.transport, FLAGS.gpus_per_model = "nccl", 1
mock.patch("common.cluster.count_gpus", lambda: 3).start()
"""
# Of the model class of the script, and of the actor class of the suite.
METHODS = """
    def start_mock(self):
        start_nccl_mock()

    def verify(self, *numbers):
        with mock.patch("torch.Tensor.device", torch.device("cpu")):  # the mock says that all tensors are on a GPU
            return super().verify(*numbers)
"""
MODEL = f"class Model(Model):{METHODS}"
ACTOR = f"class GraphActor(GraphActor):{METHODS}"
COMPILE_IN_SCRIPT = """
compile_without_mock = compile_graph

def compile_graph(flags, models):
    barriers = start_mock(models)
    graph, communicator = compile_without_mock(flags, models)
    graph.barriers = barriers  # they end with the graph
    return graph, communicator
"""
COMPILE_IN_SUITE = """
compile_without_mock = compile_graph

def compile_graph(workers, *arguments):
    workers.barriers = start_mock(workers.actors.values())
    return compile_without_mock(workers, *arguments)
"""
SCRIPT, GRAPH, PLAN = (
    "ray_cg_simulate_chat_learn_data_flow.py",
    "dataflow/transports/graph.py",
    "dataflow/plan/plan.py",
)
DRIVER = "dataflow/measure/driver.py"
NO_TEST_OF_GPUS = "torch.cuda.device_count = lambda: 3"
ADDITIONS = (
    (SCRIPT, START_MOCK + GPUS + MODEL + COMPILE_IN_SCRIPT),
    (GRAPH, START_MOCK + ACTOR + COMPILE_IN_SUITE),
    (DRIVER, NO_TEST_OF_GPUS),
    (PLAN, "validate.require_gpus = lambda transport, gpus, actors: 3"),
)
NCCL, SHARED_MEMORY = (
    f"TorchTensorType over {name}Channel"
    for name in ("TorchTensorAccelerator", "BufferedSharedMemory")
)


@pytest.mark.slow
def test_edges_between_actors_use_nccl_and_deliver_the_right_bytes(run_script, tmp_path):
    project = copy_project(tmp_path, *ADDITIONS)
    flags = ("--iterations", "6", "--warmup", "0", "--device", "cpu", *KILOBYTES)
    finished = run_script(project / SCRIPT, "--transport", "shm", *flags)
    assert (finished.code, finished.stderr) == (0, "") and finished.stdout.startswith("nccl: ")
    finished = run_script("graph", "--transport", "nccl", *flags, project=project)
    assert (finished.code, finished.stderr) == (0, "")
    run = finished.run
    assert (run.status, run.wrong_bytes, len(run.seconds)) == ("ok", 0, 6)
    edges = [str(edge) for edge in DEMO.edges]
    assert run.data_paths == {edge: SHARED_MEMORY if "driver" in edge else NCCL for edge in edges}
