# SPDX-License-Identifier: Apache-2.0
"""Test how scripts connect to Ray and disconnect. Ray itself is replaced, in a process of its own."""

import argparse
import subprocess
import sys
from textwrap import dedent

import pytest
from conftest import ROOT

from common import SuiteError, cluster
from common.sizes import message_bytes

SIZES = message_bytes(4, 256)
FLAGS = argparse.Namespace(address="127.0.0.1:6379", sizes=SIZES, device="cpu", gpus_per_model=0)
WITHOUT_RAY = """
import argparse, os, signal
from unittest.mock import patch
from common import cluster
from common.sizes import message_bytes

flags = argparse.Namespace(address=None, sizes=message_bytes(4, 256), device="cpu", gpus_per_model=0)
signal.signal(signal.SIGINT, signal.default_int_handler)
patch("ray.init").start()
patch("ray.shutdown").start()
"""


def run_without_ray(program):
    """Return what a program prints that enters the cluster of the scripts, and what it prints as errors."""
    words = [sys.executable, "-c", WITHOUT_RAY + dedent(program)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False, text=True, timeout=200)
    return done.stdout.split(), done.stderr


def test_signals_end_a_script_again_after_the_cluster_has_ended():
    printed, errors = run_without_ray("""
        with cluster.ray_cluster(flags):
            before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                os.kill(os.getpid(), number)
            except KeyboardInterrupt:
                print("interrupted")
    """)
    assert printed == ["interrupted", "interrupted"], errors


def test_a_signal_waits_until_the_cluster_has_ended():
    printed, errors = run_without_ray("""
        def shut_down():
            os.kill(os.getpid(), signal.SIGINT)
            print("ended")

        patch("ray.shutdown", shut_down).start()
        try:
            with cluster.ray_cluster(flags):
                pass
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert printed == ["ended", "interrupted"], errors


@pytest.mark.parametrize("kind", [RuntimeError, ValueError, ConnectionError, Exception])
def test_a_cluster_that_cannot_be_joined_is_one_line(monkeypatch, kind):
    def init(*_, **__):
        raise kind("Version mismatch: The cluster was started with:\n    Ray: 2.44.1\n")

    monkeypatch.setattr(cluster.ray, "init", init)
    with pytest.raises(SuiteError) as error:
        cluster.connect(FLAGS, "/tmp")
    assert str(error.value).startswith(
        "--address 127.0.0.1:6379: cannot join the cluster (Version mismatch: The cluster"
    )
    assert "\n" not in str(error.value)


def test_the_processes_of_a_joined_cluster_get_the_variables_that_decide_about_copies(monkeypatch):
    monkeypatch.setenv("RAY_ENABLE_ZERO_COPY_TORCH_TENSORS", "0")
    monkeypatch.setenv("RAY_CGRAPH_get_timeout", "300")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    variables = cluster.join_settings()["runtime_env"]["env_vars"]
    assert variables["RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"] == "0"
    assert variables["RAY_CGRAPH_get_timeout"] == "300"
    assert "RAY_AUTH_TOKEN" not in variables


def test_a_private_cluster_gets_the_number_of_gpus_if_models_need_them(monkeypatch):
    monkeypatch.setattr(cluster, "count_gpus", lambda: 2)
    assert "num_gpus" not in cluster.start_settings(FLAGS, "/tmp")
    with_gpus = argparse.Namespace(sizes=SIZES, gpus_per_model=0.5)
    assert cluster.start_settings(with_gpus, "/tmp")["num_gpus"] == 2


LATE = """
import argparse
from common.cluster import SuiteError, ray_cluster, start_models
from common.sizes import message_bytes

flags = argparse.Namespace(address=None, sizes=message_bytes(4, 256), device="cpu", gpus_per_model=0)

class Model:
    def __init__(self, *arguments):
        pass

try:
    with ray_cluster(flags):
        flags.gpus_per_model = 1
        start_models(Model, flags, seconds=3)
except SuiteError as error:
    print(error)
"""


@pytest.mark.runs
@pytest.mark.slow
def test_models_for_which_ray_has_no_gpu_are_named_in_one_line():
    words = [sys.executable, "-c", LATE]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False, text=True, timeout=200)
    assert done.stdout == (
        "policy, reference, reward did not start in 3 s: each of 3 models needs 1 GPU, and Ray has 0: "
        "use --device cpu, or more GPUs\n"
    ), done.stderr
