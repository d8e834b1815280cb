"""The collectives of ZeRO, and the bytes that its ranks send."""

from dataflow.studies import Study
from dataflow.studies.zero.flags import ZeroFlags, find_errors
from dataflow.studies.zero.flow import zero

STUDY = Study(
    flows={"zero": zero},
    tables={"zero": "zero"},
    flags=ZeroFlags,
    find_errors=find_errors,
    is_used=lambda plan: plan.task_flow.has_collectives,
    part="collectives:CollectivePart",
    collector="collectives:CollectiveCollector",
)
