"""What of a trip costs time: its messages, tensors and bytes."""

from dataclasses import dataclass

from common.flow.flow import Flow
from common.record.rows import INLINED_BYTES


@dataclass(frozen=True)
class Size:
    """What the model counts of a trip.

    stored: of its messages, those that are too large to be inlined.
    tensors: beyond the first one of each message.
    """

    messages: int
    stored: int
    tensors: int
    bytes: int


def size_of(flow: Flow) -> Size:
    """The size of a flow whose messages travel as they are drawn; of a packed one, give the packed flow."""
    edges = flow.edges
    tensors = sum(len(edge.message.leaves) for edge in edges) - len(edges)
    return Size(len(edges), sum(edge.bytes > INLINED_BYTES for edge in edges), tensors, flow.bytes_per_trip)


@dataclass(frozen=True)
class Point:
    """A size, and the median seconds of its trips."""

    size: Size
    seconds: float
