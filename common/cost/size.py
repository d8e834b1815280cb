"""What of a trip costs time: its messages, tensors and bytes."""

from dataclasses import dataclass

from common.flow.flow import Flow
from common.record.rows import INLINED_BYTES, THREADED_BYTES


@dataclass(frozen=True)
class Size:
    """What the model counts of a trip.

    stored: of its messages, those that are too large to be inlined.
    threaded: of its tensors, those that Ray has copied by threads of their own.
    tensors: beyond the first one of each message.
    """

    messages: int
    stored: int
    threaded: int
    tensors: int
    bytes: int


def size_of(flow: Flow) -> Size:
    """The size of a flow whose messages travel as they are drawn; of a packed one, give the packed flow."""
    edges = flow.edges
    leaves = [leaf for edge in edges for leaf in edge.message.leaves]
    return Size(
        messages=len(edges),
        stored=sum(edge.bytes > INLINED_BYTES for edge in edges),
        threaded=sum(leaf.bytes > THREADED_BYTES and not leaf.field.python for leaf in leaves),
        tensors=len(leaves) - len(edges),
        bytes=flow.bytes_per_trip,
    )


@dataclass(frozen=True)
class Point:
    """A size, and the median seconds of its trips."""

    size: Size
    seconds: float
