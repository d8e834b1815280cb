"""Run flows over other systems, as a user starts them. `make peers` installs the systems."""

import pytest

pytestmark = pytest.mark.optional
PPO = ("--flow", "ppo", "--batch-size", "2", "--in-flight", "3")
PEERS = [
    ("peers", "zmq-ipc", "zmq", *PPO),
    ("peers", "zmq-tcp", "zmq", "--message", "packed", "--batch-size", "2", "--inject", "policy:3:flip"),
    ("peers", "arrow-flight", "pyarrow", *PPO),
    ("store", "transfer-queue", "transfer_queue", "--flow", "grpo", "--batch-size", "4", "--message", "tensordict"),
]


@pytest.mark.parametrize("names", PEERS, ids=lambda names: names[1])
def test_fields_arrive_over_other_systems_and_a_changed_byte_is_found(run_script, join_cluster, names):
    runtime, transport, module, *flags = names
    pytest.importorskip(module, reason=f"{module}: it is not installed: make peers")
    flags += [*join_cluster(runtime), "--iterations", "4", "--warmup", "1"]
    finished = run_script(runtime, "--transport", transport, *flags)
    if "--inject" in flags:
        assert finished.code == 1 and finished.run.wrong_bytes > 0
        return
    assert (finished.code, finished.stderr) == (0, "")
    assert (finished.run.status, finished.run.wrong_bytes) == ("ok", 0)
    assert finished.run.readers_own_a_copy
