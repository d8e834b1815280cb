"""The traffic of one optimizer step of ZeRO (arXiv 1910.02054): collectives, and the bytes that ranks send in them.

    driver --> rank-1, rank-2, ...: collectives between them --> driver: acknowledgements

Gradients and parameters are float16. Each rank owns an equal part of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from msgspec import Meta

from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, model_fields
from dataflow.plan.flag import flag
from dataflow.studies import Study

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all-reduce", "reduce-scatter", "all-gather"
# The gradients; gradients, then updated parameters; parameters for forward and backward pass, then gradients.
STAGES = {1: (ALL_REDUCE,), 2: (REDUCE_SCATTER, ALL_GATHER), 3: (ALL_GATHER, ALL_GATHER, REDUCE_SCATTER)}
NUMBER_BYTES = 2
_size = partial(flag, "zero", None, size=True)


@dataclass(frozen=True, kw_only=True)
class ZeroFlags:
    zero_stage: int | None = _size("stage of ZeRO: 1, 2 or 3", int, Meta(ge=1, le=3))
    zero_ranks: int | None = _size("ranks of the model (default: 4)", int, Meta(ge=2, le=64))


def zero(model: str = "gpt2", zero_ranks: int = 4, zero_stage: int = 2, model_scale: float = 1.0) -> Flow:
    """Return a step of `zero_ranks` actors, each with the bytes that it sends by the ring algorithms of textbooks."""
    count = sum(prod(field.shape) for field in model_fields(model, model_scale))
    count += -count % zero_ranks  # equal parts
    passes = sum(2 if kind == ALL_REDUCE else 1 for kind in STAGES[zero_stage])
    sent_bytes = passes * NUMBER_BYTES * (count - count // zero_ranks)
    names = tuple(f"rank-{rank}" for rank in range(1, zero_ranks + 1))
    work = STAGES[zero_stage], count  # what a rank takes part in: the kinds of the collectives, and their numbers
    tasks = tuple(Task(name, (DRIVER,), ACKNOWLEDGEMENT, work=work, other_bytes=sent_bytes) for name in names)
    scale = f" at scale {model_scale:g}" if model_scale < 1 else ""
    title = f"ZeRO stage {zero_stage} of {model}{scale}, {zero_ranks} ranks"
    return Flow("zero", title, ACKNOWLEDGEMENT, tasks, returns=names)


def find_errors(transport: Any, options: Any, flow: Flow) -> Iterator[str]:
    if (transport.name == "collectives") != (flow.name == "zero"):
        yield f"{transport.label}: --flow zero and the transport collectives need each other: give both"


STUDY = Study(
    flows={"zero": zero},
    tables={"zero": "zero"},
    flags=ZeroFlags,
    find_errors=find_errors,
    is_used=lambda plan: any(task.other_bytes for task in plan.task_flow.tasks),
    part="collectives:CollectivePart",
    collector="collectives:CollectiveCollector",
)
