"""How a case ended: whether its bytes were right, and took the path that its transport names."""

from typing import Any

from common.flow.flow import Flow

# Ray keeps smaller results in its messages, not in shared memory (max_direct_call_object_size).
INLINED_BYTES = 100 * 1024


def verdict(case: dict[str, Any], flow: Flow, mapped: dict[str, bool], promised: bool) -> dict[str, Any]:
    """The case's status: bytes must be right, and must have taken the path that the transport names."""
    if case["wrong_bytes"]:
        return {"status": "failed", "reason": f"{case['wrong_bytes']} wrong bytes arrived: this transport loses data"}
    for edge in flow.edges:
        if promised and edge.bytes <= INLINED_BYTES:
            continue
        if case["device"] == "cpu" and mapped[str(edge)] != promised:
            found = "mapped" if mapped[str(edge)] else "copied"
            return {"status": "failed", "reason": f"{edge}: the payload was {found}, which {case['transport']} is not"}
    return {"status": "ok", "reason": None}
