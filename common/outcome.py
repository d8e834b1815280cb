"""How a case ended: whether its bytes took the path that its transport names, and who is to blame if not."""

import re
from typing import Any

from common.flows import Flow

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


def blame(error: Exception, handles: dict[str, Any], trip: int) -> str:
    """Who is to blame for a trip that failed, in one line: who raised, who died, or who waits for what."""
    import ray

    if isinstance(error, ray.exceptions.RayTaskError) and not isinstance(error.cause, ray.exceptions.RayActorError):
        # The error of a role goes through all that wait for it; the innermost one comes last.
        name = re.findall(r"ray::([\w-]+)", str(error))[-1]
        return f"{name} raised {type(error.cause).__name__}: {str(error.cause).partition(chr(10))[0]}"
    answers = {name: handle.progress.remote() for name, handle in handles.items()}
    behind = []
    for name, answer in answers.items():
        try:
            received = ray.get(answer, timeout=2)
            if received < trip:
                behind.append(f"{name} has received {received} trips and waits")
        except ray.exceptions.RayActorError:
            return f"{name} died"
        except ray.exceptions.GetTimeoutError:
            behind.append(f"{name} does not answer")
    return f"{error}; {behind[0] if behind else 'every role has received it, its result did not reach the driver'}"
