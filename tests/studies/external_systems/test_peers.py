"""Run flows over other systems, as a user starts them, and compare every byte. `make peers` installs the systems."""

import pytest
import torch
from in_process import LocalEndpoints, on_edge

from dataflow.errors import RunFailed
from dataflow.flows.catalogue import build_flow

PPO = ("--flow", "ppo", "--batch-size", "2")
PEERS = [
    ("peers zmq-ipc", "zmq", *PPO, "--in-flight", "3"),
    ("peers zmq-tcp", "zmq", *PPO, "--message", "packed"),
    ("peers arrow-flight", "pyarrow", *PPO, "--in-flight", "3"),
    ("store transfer-queue", "transfer_queue", "--flow", "grpo", "--batch-size", "4", "--message", "tensordict"),
]


@pytest.mark.optional
@pytest.mark.parametrize("names", PEERS, ids=lambda names: names[0])
def test_fields_arrive_over_other_systems(measure, names):
    configuration, module, *flags = names
    pytest.importorskip(module, reason=f"{module}: it is not installed: make peers")
    (run,) = measure(configuration, *flags, "--iterations", "4", "--warmup", "1").runs
    assert run.readers_own_a_copy


@pytest.mark.runs  # it is not quick either: tensordict imports the compiler of torch
@pytest.mark.parametrize("response_len", [4, "uniform:2:9"], ids=str)
def test_every_byte_of_a_tensordict_is_compared(response_len):
    """Samples of equal lengths are stacked, others are nested tensors."""
    flow = build_flow("ppo", {"batch_size": 3, "prompt_len": 5, "response_len": response_len}, "tensordict")
    endpoints = LocalEndpoints(flow, message="tensordict")
    endpoints.run(1)
    assert endpoints.verify(1) == {}

    def change(received):
        (values,) = [value for name, value in received.items() if name == "action_logprobs"]
        values = values.values() if values.is_nested else values
        values.view(torch.uint8).reshape(-1)[-1] ^= 1
        return received

    endpoints.run(2, on_edge("reward -> driver", change))
    assert endpoints.verify(2) == {"reward -> driver, action_logprobs": 1}
    with pytest.raises(RunFailed, match="expected a TensorDict for policy -> reference; got dict"):
        endpoints.actors["reference"].receive([{}], "reference")
