"""Run flows over other systems, as a user starts them. `make peers` installs the systems."""

import pytest

pytestmark = pytest.mark.optional
MISSING = "it is not installed: make peers"
PEERS = [
    ("peers", "zmq-ipc", "zmq", "--flow", "ppo", "--batch-size", "2", "--in-flight", "3"),
    ("peers", "zmq-tcp", "zmq", "--message", "packed", "--batch-size", "2"),
    ("peers", "arrow-flight", "pyarrow", "--flow", "ppo", "--batch-size", "2", "--in-flight", "3"),
    ("store", "transfer-queue", "transfer_queue", "--flow", "grpo", "--batch-size", "4", "--message", "tensordict"),
]


@pytest.mark.parametrize("names", PEERS, ids=lambda names: names[1])
def test_fields_arrive_over_other_systems(run_script, join_cluster, names):
    runtime, transport, module, *flags = names
    pytest.importorskip(module, reason=f"{module}: {MISSING}")
    flags += [*join_cluster(runtime), "--iterations", "4", "--warmup", "1"]
    finished = run_script(runtime, "--transport", transport, *flags)
    assert (finished.code, finished.stderr) == (0, "")
    assert (finished.run.status, finished.run.wrong_bytes) == ("ok", 0)
    assert finished.run.readers_own_a_copy


def test_a_changed_byte_of_another_system_is_found(run_script):
    pytest.importorskip("zmq", reason=f"zmq: {MISSING}")
    flags = ("--transport", "zmq-ipc", "--batch-size", "8", "--inject", "policy:3:flip", "--iterations", "4")
    finished = run_script("peers", *flags)
    assert finished.code == 1
    assert finished.run.wrong_bytes > 0
