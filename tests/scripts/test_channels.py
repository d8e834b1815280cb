# SPDX-License-Identifier: Apache-2.0
"""Test what the pages say of the channels of Ray's compiled graphs, and which processes a graph has."""

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from scripts.test_examples import run_with_a_cluster_of_its_own

CHANNELS = """
import os
from pathlib import Path

os.environ["RAY_CGRAPH_get_timeout"] = "100"  # seconds: actors import torch first
import ray
import torch
from ray.dag import DAGContext, InputNode

from common.cluster import remove_semaphores

MIB = 2**20


class Sender:
    def make(self, mebibytes):
        return torch.full((mebibytes * MIB // 8,), mebibytes)


class Reader:
    def read(self, tensor):
        return tensor.nbytes, int(tensor[-1])


def count_new_channels(variables, **arguments):
    # Ray makes a larger channel, with semaphores of its own, if a message is larger than the buffer.
    environment = {"env_vars": variables}
    sender = ray.remote(Sender).options(runtime_env=environment).remote()
    reader = ray.remote(Reader).options(runtime_env=environment).remote()
    with InputNode() as mebibytes:
        tensor = sender.make.bind(mebibytes).with_tensor_transport("shm")
        output = reader.read.bind(tensor)
        graph = output.experimental_compile(_max_inflight_executions=1, **arguments)
    counts = []
    for size in (8, 8, 24):
        known = {*Path("/dev/shm").glob(pattern)}
        assert ray.get(graph.execute(size)) == (size * MIB, size)
        counts.append(len({*Path("/dev/shm").glob(pattern)} - known))
    DAGContext.get_current().teardown_timeout = 1  # second
    graph.teardown(kill_actors=True)
    return counts


with remove_semaphores():
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="critical", num_cpus=2)
    (raylet,) = ray._private.worker._global_node.all_processes["raylet"]
    pattern = f"sem.obj{raylet.process.pid}-*"
    try:
        print(count_new_channels({}))
        print(count_new_channels({}, _buffer_size_bytes=16 * MIB))
        print(count_new_channels({"RAY_CGRAPH_buffer_size_bytes": str(16 * MIB)}))
    finally:
        ray.shutdown()  # or the semaphores are in use, and stay
"""


@pytest.mark.long  # it is about Ray, whose version is pinned
@pytest.mark.runs
def test_channels_grow_at_the_first_larger_message_and_only_the_variable_sets_their_first_size():
    done = run_with_a_cluster_of_its_own("-c", CHANNELS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[1, 0, 1]", "[1, 0, 1]", "[0, 0, 1]"]


COMPILED = """
import argparse
import time

import psutil

import ray_cg_simulate_chat_learn_data_flow as script
from common.cluster import ray_cluster, remove_semaphores, start_models
from common.sizes import message_bytes

sizes = message_bytes(4, 256)
flags = argparse.Namespace(address=None, sizes=sizes, device="cpu", gpus_per_model=0, transport="shm")


def find_workers():
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if child.name().startswith("ray::")}


with remove_semaphores(), ray_cluster(flags):
    models = start_models(script.Model, flags)
    before = find_workers()
    graph, _ = script.compile_graph(flags, models)
    at_once = find_workers()
    time.sleep(5)
    print(len(at_once - before), len(find_workers() - at_once))
"""


@pytest.mark.slow
@pytest.mark.runs
def test_the_process_that_ray_starts_beside_a_graph_is_there_before_the_first_iteration():
    """Otherwise, its start takes the cores of the first iterations."""
    done = run_with_a_cluster_of_its_own("-c", COMPILED)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 0\n", done.stderr


PAGE = ROOT / "docs" / "in-your-code.md"
CHOSEN = 12_345_678  # bytes
VARIABLE = "RAY_CGRAPH_buffer_size_bytes"
# What decides about the first size of a channel, without a cluster: Ray makes a channel of a type without the size of
# the type, so it asks for a new type without one.
DEFAULTS = f"""
from ray.dag import DAGContext
from ray.experimental.channel import shared_memory_channel as channels

given = []
channels.CompositeChannel = lambda *arguments: given.extend(arguments)
of_the_argument = channels.SharedMemoryType(buffer_size_bytes={2 * CHOSEN}, num_shm_buffers=3)
of_the_argument.create_channel(None, [])
context = DAGContext.get_current()
print({2 * CHOSEN} in given, 3 in given, channels.SharedMemoryType().buffer_size_bytes)
print(context.max_inflight_executions, context.teardown_timeout)
"""


def test_the_page_names_the_setting_that_decides_about_buffers_and_the_defaults_of_ray():
    environment = os.environ | {VARIABLE: str(CHOSEN)}
    for name in ("RAY_CGRAPH_max_inflight_executions", "RAY_CGRAPH_teardown_timeout"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", DEFAULTS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    of_buffers, of_graphs = done.stdout.splitlines()
    assert of_buffers == f"False True {CHOSEN}"
    in_flight, seconds = of_graphs.split()
    text = " ".join(PAGE.read_text().split())
    for sentence in (
        f"set their first size in bytes with the variable `{VARIABLE}`, before the processes that send messages import",
        "the argument `_buffer_size_bytes` has no effect on channels in shared memory",
        f"`_max_inflight_executions` buffers (default: {in_flight})",
        f"`RAY_CGRAPH_teardown_timeout` (default: {seconds} seconds)",
    ):
        assert sentence in text


def test_no_page_and_no_example_sets_the_argument_without_an_effect():
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    files += [*ROOT.glob("*.py"), *(ROOT / "dataflow").rglob("*.py")]
    for path in files:
        assert not re.search(r"_buffer_size_bytes\s*=", path.read_text()), path
