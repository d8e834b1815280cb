# SPDX-License-Identifier: Apache-2.0
"""Test what Ray Direct Transport needs from a producer that reuses its memory."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT, require_nixl

PROGRAM = """
import ray
from examples.receive_in_place import Producer, Reader
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
producer, reader = (ray.remote(num_cpus=0, enable_tensor_transport=True)(of).remote() for of in (Producer, Reader))
first = ray.get(producer.put.remote(1, waits=False))
ray.get(producer.put.remote(2, waits=False))
print(ray.get(reader.pull.remote(first)))
del first
third = ray.get(producer.put.remote(3))
fourth = producer.put.remote(4)
print(ray.get(reader.pull.remote(third)), ray.wait([fourth], timeout=1)[0])
del third
print(ray.get(reader.pull.remote(ray.get(fourth))))
"""


@pytest.mark.slow
@pytest.mark.runs
def test_a_producer_must_wait_before_it_writes_again(tmp_path):
    require_nixl()
    command, environment = [sys.executable, "-c", PROGRAM], os.environ | {"UCX_NET_DEVICES": "lo"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.stdout.splitlines() == ["2", "3 []", "4"], (
        done.stderr
    )  # the first reader gets the second message


FAULTS = """
import time
import ray
import torch
from ray.experimental import set_target_for_ref

class Producer:
    def put(self):
        return [ray.put(torch.ones(1000, dtype=torch.int64), _tensor_transport="nixl")]

class Reader:
    def pull(self, references, dtype=torch.int64, count=1000):
        target = torch.zeros(count, dtype=dtype)
        set_target_for_ref(references[0], [target])
        try:
            received = ray.get(references[0], timeout=20)
            return f"{int(received.sum())} {received is target}"
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
producer, reader = (ray.remote(num_cpus=0, enable_tensor_transport=True)(of).remote() for of in (Producer, Reader))
references = [ray.get(producer.put.remote()) for _ in range(4)]
print(ray.get(reader.pull.remote(references[0])))
print(ray.get(reader.pull.remote(references[1], torch.int32)))
print(ray.get(reader.pull.remote(references[2], torch.int64, 999)))
ray.kill(producer)
time.sleep(1)
print(ray.get(reader.pull.remote(references[3])))
"""


@pytest.mark.long
@pytest.mark.runs
def test_a_wrong_target_and_a_dead_producer_are_errors():
    require_nixl()
    command, environment = [sys.executable, "-c", FAULTS], os.environ | {"UCX_NET_DEVICES": "lo"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    right, dtype, size, dead = done.stdout.splitlines()
    assert (right, dtype[:10], size[:10]) == ("1000 True", "ValueError", "ValueError"), done.stderr
    assert (
        "torch.int32" in dtype and "torch.Size([999])" in size and dead.startswith("OwnerDiedError")
    )


@pytest.mark.slow
@pytest.mark.runs
def test_the_first_message_arrives_although_two_threads_need_the_manager_at_once(run_script):
    require_nixl()
    flow = ("--flow", "a -> b: 200kB", "--iterations", "2", "--warmup", "0", "--timeout", "20")
    finished = run_script("rdt", "--transport", "nixl", *flow, "--inject", "b:1:slow-manager")
    assert (finished.run.status, finished.run.reason) == ("ok", None)
