"""A compiled graph's channels must be those that the transport stands for."""

import pytest
from payload_ends import COLOCATED, DEMO

from common.errors import RunFailed
from common.transport.graph_proof import refuse_fallback

SHARED_MEMORY = "TorchTensorType over BufferedSharedMemoryChannel"
OVER_NCCL = "TorchTensorType over TorchTensorAcceleratorChannel"
UNTYPED = "SharedMemoryType over BufferedSharedMemoryChannel"
OWN = {None: UNTYPED, "shm": SHARED_MEMORY, "nccl": OVER_NCCL}


def paths(flow, hint):
    """What a graph that falls nowhere back has: the driver's own edges never go by NCCL."""
    edges = [(str(edge), "driver" in (edge.source, edge.reader)) for edge in flow.edges]
    return {edge: SHARED_MEMORY if ends and hint == "nccl" else OWN[hint] for edge, ends in edges}


@pytest.mark.parametrize("flow", [DEMO, COLOCATED], ids=lambda flow: flow.name)
@pytest.mark.parametrize("hint", OWN)
def test_a_graph_of_the_promised_channels_is_taken_and_one_other_channel_is_refused_by_its_edge(flow, hint):
    right = paths(flow, hint)
    refuse_fallback(right, flow, hint, "this")
    for edge, own in right.items():
        for other in {OVER_NCCL, SHARED_MEMORY, UNTYPED} - {own}:
            with pytest.raises(RunFailed, match=f"{edge} goes by {other}, which this is not"):
                refuse_fallback(right | {edge: other}, flow, hint, "this")
