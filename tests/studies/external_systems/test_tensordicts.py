"""Test messages that are TensorDicts, as of TransferQueue."""

import pytest
import torch
from conftest import reject_options
from in_process import LocalEndpoints, on_edge

from dataflow.errors import RunFailed
from dataflow.flows.catalogue import build_flow


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


@pytest.mark.parametrize(
    ("runtime", "flags", "reason"),
    [("torch", [], "torch gloo carries tensors and no Python objects: give jagged"),
     ("store", ["--flow", "chain"], "no common number of samples")],
)  # fmt: skip
def test_tensordicts_need_a_transport_of_objects_and_samples(no_gpu, runtime, flags, reason):
    assert reason in reject_options(runtime, "--message", "tensordict", *flags)
