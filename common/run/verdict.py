"""How a run ended: whether its bytes were right, and took the path that its transport names."""

from common.flow.flow import Flow
from common.plan.plan import Plan
from common.record.rows import INLINED_BYTES

SEEN = {True: "mapped", False: "copied", None: "mapped in part"}


def failure(plan: Plan, wrong: dict[str, int], mapped: dict[str, bool | None]) -> str | None:
    """Why the run has failed: wrong bytes, or an edge that went another way; None where all is well.

    Args:
        mapped: of each edge, whether its readers saw shared memory.
    """
    if wrong:
        worst = max(wrong, key=lambda name: wrong[name])
        where = f", most of them in {worst}" if len(wrong) > 1 or "," in worst else ""
        return f"{sum(wrong.values())} wrong bytes arrived{where}: this transport loses data"
    flow: Flow = plan.flow
    for edge in flow.edges:
        if plan.promised_views and edge.bytes <= INLINED_BYTES:
            continue
        if plan.device == "cpu" and mapped[str(edge)] is not plan.promised_views:
            return f"{edge}: the payload was {SEEN[mapped[str(edge)]]}, which {plan.row.transport} is not"
    return None
