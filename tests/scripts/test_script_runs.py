# SPDX-License-Identifier: Apache-2.0
"""Run the two scripts as a user does: each transport, faults, and what they leave behind (nothing)."""

import re
import signal
import time
from contextlib import suppress

import psutil
import pytest
from conftest import KILOBYTES, LEAVE_SECONDS, ROOT, RUN_SECONDS, copy_project

from common.record_files import load

STORE, GRAPH = (
    ROOT / "simulate_chat_learn_data_flow.py",
    ROOT / "ray_cg_simulate_chat_learn_data_flow.py",
)
CASES = [  # each transport with a cluster of its own or with a shared one, which goes on after the run
    pytest.param(STORE, "driver-queue", False, marks=pytest.mark.slow),
    (STORE, "refs", True), (GRAPH, "shm", True),
    pytest.param(STORE, "ref-queue", True, marks=pytest.mark.long),
    pytest.param(GRAPH, "pickle", False, marks=pytest.mark.long),
]  # fmt: skip
SHORT, LONG = ("--warmup", "1", "--iterations", "3"), ("--warmup", "0", "--iterations", "1000000")
pytestmark = pytest.mark.runs


@pytest.mark.parametrize(("script", "transport", "is_shared"), CASES)
def test_each_transport_ends_with_its_time_and_leaves_nothing_behind(
    run_script, join_cluster, script, transport, is_shared
):
    flags = join_cluster("store") if is_shared else ()
    finished = run_script(script, "--transport", transport, *KILOBYTES, *SHORT, *flags)
    assert (finished.code, finished.stderr) == (0, "")
    (run,) = load(finished.output).runs
    assert (run.status, run.readers_own_a_copy) == ("ok", True)
    # The processes of an existing cluster cannot be told from other programs.
    assert (run.other_cores is None, run.idle_cores is None) == (is_shared, is_shared)
    assert (len(run.warmup_seconds), len(run.seconds)) == (1, 3)
    assert finished.stdout.splitlines()[-1] == f"Execution time: {sum(run.seconds):.2f} seconds"
    assert str(finished.output) in finished.stdout


def find_actors(script):
    """Wait until all three models of a script iterate, and return their processes."""
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline and script.process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(script.process.pid).children(recursive=True)
            actors = [child for child in children if child.name().startswith("ray::Model")]
            if len(actors) == 3 and all(
                sum(actor.cpu_times()[:2]) > 1 for actor in actors
            ):  # they import torch first
                time.sleep(3)
                return actors
        time.sleep(0.1)
    raise AssertionError(f"the actors did not start: {script.process.communicate()}")


@pytest.mark.parametrize(("script", "fault", "code", "message"), [
    pytest.param(STORE, "kill", 1, "(policy|reference|reward) died", marks=pytest.mark.slow),
    pytest.param(GRAPH, "kill", 1, "(policy|reference|reward) died", marks=pytest.mark.long),
    pytest.param(STORE, signal.SIGINT, 130, "interrupted after [0-9]+ timed iterations", marks=pytest.mark.long),
    pytest.param(GRAPH, signal.SIGTERM, 130, "interrupted after [0-9]+ timed iterations", marks=pytest.mark.long),
    # An actor that hangs, then Ctrl-C.
    pytest.param(GRAPH, "suspend", 130, "interrupted after [0-9]+ timed iterations", marks=pytest.mark.long),
])  # fmt: skip
def test_a_fault_is_one_line_keeps_the_samples_and_leaves_nothing_behind(
    begin_run, script, fault, code, message
):
    begun = begin_run(script, *KILOBYTES, *LONG)
    actor = find_actors(begun)[1]
    if fault in ("kill", "suspend"):
        getattr(actor, fault)()
    if fault != "kill":
        begun.process.send_signal(signal.SIGINT if fault == "suspend" else fault)
    finished = begun.finish()
    assert begun.leftovers(LEAVE_SECONDS) == set()
    (run,) = load(finished.output).runs
    assert re.fullmatch(f"error: {message}\n", finished.stderr), finished.stderr
    assert finished.stdout == ""  # Ray would advise to read the logs of an actor that died
    assert (
        finished.code == code
        and run.status == "failed"
        and finished.stderr == f"error: {run.reason}\n"
    )
    assert run.seconds


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(STORE, marks=pytest.mark.long),
        pytest.param(GRAPH, marks=pytest.mark.slow),
    ],
)
def test_a_wrong_byte_fails_the_run_and_names_the_edge(run_script, cluster, tmp_path, script):
    """The reference model changes one byte of iteration 3 after its message was made."""
    faulty_model = """
class Model(Model):
    def message(self, number):
        message = super().message(number)
        message[9:10].add_(number == 3 and self.name == "reference")
        return message
"""
    copy_project(tmp_path, (script.name, faulty_model))
    finished = run_script(tmp_path / script.name, *KILOBYTES, *SHORT, *cluster)
    assert finished.code == 1
    expected = (
        r"error: reference -> reward: 1 bytes of message 3 differ from what was sent, .* number 3\n"
    )
    assert re.fullmatch(expected, finished.stderr), finished.stderr
    assert len(load(finished.output).runs[0].warmup_seconds) == 1


@pytest.mark.long  # the runs of each transport say it for copies
@pytest.mark.parametrize(("setting", "is_copy"), [("0", True), ("1", False)])
def test_a_script_finds_out_whether_readers_own_a_copy(run_script, tmp_path, setting, is_copy):
    change = f'COPIES["RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"] = "{setting}"'
    copy_project(tmp_path, ("common/ray_settings.py", change))
    # 2 to 10 MiB: Ray does not put messages of some kilobytes into its store.
    flags = ("--transport", "refs", "--batch-size", "64", *SHORT)
    finished = run_script(tmp_path / STORE.name, *flags)
    assert finished.code == 0, finished.stderr  # which has warnings of Ray and torch about views
    (run,) = load(finished.output).runs
    assert run.readers_own_a_copy is is_copy
