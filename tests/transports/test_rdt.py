"""Test what Ray Direct Transport needs from a producer that reuses its memory."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

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


@pytest.mark.runs
def test_a_producer_must_wait_before_it_writes_again(tmp_path):
    pytest.importorskip("nixl")
    command, environment = [sys.executable, "-c", PROGRAM], os.environ | {"UCX_NET_DEVICES": "lo"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout.splitlines() == ["2", "3 []", "4"], done.stderr  # the first reader gets the second message
