"""Systems that people use instead of Ray's transports: ZeroMQ, Arrow Flight, TransferQueue, and TensorDict messages."""

from collections.abc import Iterator
from typing import Any

from dataflow.flows.message import ACKNOWLEDGEMENT
from dataflow.studies import Study


def find_errors(transport: Any, options: Any, flow: Any) -> Iterator[str]:
    if options.message != "tensordict":
        return
    if not transport.carries_objects:
        yield f"--message tensordict: {transport.label} carries tensors and no Python objects: give jagged"
    if flow.is_flat or any(len(m.sample_counts) > 1 for m in flow.messages if m != ACKNOWLEDGEMENT):
        yield f"--message tensordict: {flow.name} has messages whose fields have no common number of samples"


STUDY = Study(
    forms={"tensordict": None}, find_errors=find_errors, part="tensordicts:TensorDictPart",
    is_used=lambda plan: plan.options.message == "tensordict",
)  # fmt: skip
