# SPDX-License-Identifier: Apache-2.0
"""Systems that people use instead of Ray's transports: ZeroMQ, Arrow Flight, HTTP, files, NIXL, and more."""

from collections.abc import Iterator
from typing import Any

import psutil

from dataflow.flows.message import ACKNOWLEDGEMENT
from dataflow.study import Study
from dataflow.units import format_bytes


def find_errors(transport: Any, options: Any, flow: Any) -> Iterator[str]:
    needed_bytes = 2 * flow.sent_bytes + (2 * options.in_flight + 1) * flow.bytes_per_iteration
    if transport.name == "iceoryx2" and needed_bytes > psutil.disk_usage("/dev/shm").free:
        yield f"iceoryx2 may need {format_bytes(needed_bytes)} of /dev/shm, which has less: send smaller messages"
    if options.message != "tensordict":
        return
    if not transport.carries_objects:
        yield f"--message tensordict: {transport.label} carries tensors and no Python objects: give jagged"
    if flow.is_flat or any(len(m.sample_counts) > 1 for m in flow.messages if m != ACKNOWLEDGEMENT):
        yield f"--message tensordict: {flow.name} has messages whose fields have no common number of samples"


STUDY = Study(
    forms={"tensordict": None},
    find_errors=find_errors,
    part="tensordicts:TensorDictPart",
    is_used=lambda plan: plan.options.message == "tensordict",
)
