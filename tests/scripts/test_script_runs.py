"""Run the two scripts as a user does: each transport, faults, and what they leave behind (nothing)."""

import re
import signal
import time
from contextlib import suppress

import psutil
import pytest
from conftest import KILOBYTES, LEAVE_SECONDS, ROOT, RUN_SECONDS

from common.record import load

STORE, GRAPH = ROOT / "simulate_chat_learn_data_flow.py", ROOT / "ray_cg_simulate_chat_learn_data_flow.py"
TRANSPORTS = {STORE: ("driver-queue", "ref-queue", "refs"), GRAPH: ("shm", "pickle")}
CASES = [(script, transport) for script, transports in TRANSPORTS.items() for transport in transports]
SHORT, LONG = ("--warmup", "1", "--iterations", "3"), ("--warmup", "0", "--iterations", "1000000")
pytestmark = pytest.mark.runs


@pytest.mark.parametrize(("script", "transport"), CASES)
def test_each_transport_ends_with_its_time_and_leaves_nothing_behind(run_script, script, transport):
    finished = run_script(script, "--transport", transport, *KILOBYTES, *SHORT)
    assert finished.code == 0, finished.stderr
    assert finished.stderr == ""
    (run,) = load(finished.output).runs
    assert run.status == "ok" and len(run.warmup_seconds) == 1 and len(run.seconds) == 3
    assert finished.stdout.splitlines()[-1] == f"Execution time: {sum(run.seconds):.2f} seconds"
    assert str(finished.output) in finished.stdout


@pytest.mark.parametrize(("script", "transport"), [(STORE, "ref-queue"), (GRAPH, "shm")])
def test_an_existing_cluster_is_joined_and_goes_on(run_script, cluster, script, transport):
    for _ in range(2):
        finished = run_script(script, *cluster, "--transport", transport, *KILOBYTES, *SHORT)
        assert finished.code == 0, finished.stderr
        assert finished.run.status == "ok"
        finished.output.unlink()


def find_actors(script):
    """Wait until all three models of a script iterate, and return their processes."""
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline and script.process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(script.process.pid).children(recursive=True)
            actors = [child for child in children if child.name().startswith("ray::Model")]
            if len(actors) == 3 and all(sum(actor.cpu_times()[:2]) > 1 for actor in actors):  # they import torch first
                time.sleep(3)
                return actors
        time.sleep(0.1)
    raise AssertionError(f"the actors did not start: {script.process.communicate()}")


@pytest.mark.parametrize(
    ("script", "fault", "code", "message"),
    [
        (STORE, "kill", 1, "(policy|reference|reward) died"),
        (GRAPH, "kill", 1, "(policy|reference|reward) died"),
        (STORE, signal.SIGINT, 130, "interrupted after [0-9]+ timed iterations"),
        (GRAPH, signal.SIGTERM, 130, "interrupted after [0-9]+ timed iterations"),
        (GRAPH, "suspend", 130, "interrupted after [0-9]+ timed iterations"),  # an actor that hangs, then Ctrl-C
    ],
)
def test_a_fault_is_one_line_keeps_the_samples_and_leaves_nothing_behind(begin_run, script, fault, code, message):
    begun = begin_run(script, *KILOBYTES, *LONG)
    actor = find_actors(begun)[1]
    if fault in ("kill", "suspend"):
        getattr(actor, fault)()
    if fault != "kill":
        begun.process.send_signal(signal.SIGINT if fault == "suspend" else fault)
    finished = begun.finish()
    assert begun.leftovers(LEAVE_SECONDS) == []
    (run,) = load(finished.output).runs
    assert re.fullmatch(f"error: {message}\n", finished.stderr), finished.stderr
    assert finished.code == code and run.status == "failed" and finished.stderr == f"error: {run.reason}\n"
    assert run.seconds


@pytest.fixture
def run_changed(run_script, tmp_path):
    """run_changed(script, {text: new text}, *flags) -> Finished, of a copy of the script with these changes."""

    def run(script, changes, *flags):
        text = script.read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (tmp_path / script.name).write_text(text)
        (tmp_path / "common").symlink_to(ROOT / "common")
        return run_script(tmp_path / script.name, *flags, *KILOBYTES, *SHORT)

    return run


@pytest.mark.parametrize("script", [STORE, GRAPH])
def test_a_wrong_byte_fails_the_run_and_names_the_edge(run_changed, script):
    """The reference model changes one byte of iteration 3 after its message was made."""
    method = """
    def message(self, number):
        message = super().message(number)
        message[9:10].add_(number == 3 and self.name == "reference")
        return message

    def forward(self"""
    finished = run_changed(script, {"    def forward(self": method})
    assert finished.code == 1
    expected = r"error: reference -> reward: 1 bytes of message 3 differ from what was sent, .* number 3\n"
    assert re.fullmatch(expected, finished.stderr), finished.stderr
    assert len(load(finished.output).runs[0].warmup_seconds) == 1


MOCKED_IMPORTS = """
from functools import partial
from itertools import combinations
from unittest import mock

import ray
import torch
from ray.experimental.channel.conftest import Barrier, start_nccl_mock
from ray.experimental.util.types import Device

FLAGS.transport, FLAGS.gpus_per_model, ray.init = "nccl", 1, partial(ray.init, num_gpus=3)
mock.patch("ray.experimental.channel.torch_tensor_type.TorchTensorType.device", Device.CPU).start()
"""
MOCKED_MODEL = """    def start_mock(self):
        start_nccl_mock()

    def verify(self, number):
        with mock.patch("torch.Tensor.device", torch.device("cpu")):  # the mock says that all tensors are on a GPU
            super().verify(number)

    def pass_through(self"""
MOCKED_MAIN = """            names = [f"barrier-{low}-{high}" for low, high in combinations(range(3), 2)]
            barriers = [Barrier.options(name=name).remote() for name in names]
            ray.get([model.start_mock.remote() for model in models])
            with InputNode()"""


def test_the_edges_of_nccl_deliver_the_right_bytes_over_a_mock_of_nccl(run_changed):
    """It shows that the graph compiles and that messages are right without a GPU, and says nothing about speed."""
    changes = {"\nimport ray\n": MOCKED_IMPORTS, "    def pass_through(self": MOCKED_MODEL}
    finished = run_changed(GRAPH, changes | {"            with InputNode()": MOCKED_MAIN}, "--transport", "shm")
    assert finished.code == 0, finished.stderr
    assert finished.stdout.startswith("nccl: ")
