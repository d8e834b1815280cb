# SPDX-License-Identifier: Apache-2.0
"""The traffic of one optimizer step of ZeRO (arXiv 1910.02054): collectives, and the bytes that ranks send in them.

    driver --> rank-1, rank-2, ...: collectives between them --> driver: acknowledgements

Gradients and parameters are float16. Each rank owns an equal part of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from msgspec import Meta

from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, model_fields
from dataflow.plan.flag import flag
from dataflow.study import Study

ALL_REDUCE = "all-reduce"
REDUCE_SCATTER = "reduce-scatter"
ALL_GATHER = "all-gather"
# The gradients; gradients, then updated parameters; parameters for forward and backward pass, then gradients.
STAGES = {
    1: (ALL_REDUCE,),
    2: (REDUCE_SCATTER, ALL_GATHER),
    3: (ALL_GATHER, ALL_GATHER, REDUCE_SCATTER),
}
NUMBER_BYTES = 2


@dataclass(frozen=True, kw_only=True)
class ZeroFlags:
    zero_stage: int | None = flag(
        "zero", None, "stage of ZeRO: 1, 2 or 3", int, Meta(ge=1, le=3), size=True
    )
    zero_ranks: int | None = flag(
        "zero", None, "ranks of the model (default: 4)", int, Meta(ge=2, le=64), size=True
    )


def zero(
    model: str = "gpt2", zero_ranks: int = 4, zero_stage: int = 2, model_scale: float = 1.0
) -> Flow:
    """Return a step of `zero_ranks` actors, each with the bytes that it sends by the ring algorithms of textbooks.

    Raise ValueError for an unknown model. --zero-stage accepts the keys of STAGES only.
    """
    # The numbers of each rank.
    part = ceil(sum(prod(field.shape) for field in model_fields(model, model_scale)) / zero_ranks)
    kinds = STAGES[zero_stage]
    names = tuple(f"rank-{rank}" for rank in range(1, zero_ranks + 1))
    sent_bytes = (len(kinds) + kinds.count(ALL_REDUCE)) * NUMBER_BYTES * part * (zero_ranks - 1)
    # What a rank takes part in: the kinds of the collectives, and their numbers.
    work = (kinds, zero_ranks * part)
    tasks = tuple(
        Task(name, (DRIVER,), ACKNOWLEDGEMENT, work=work, other_bytes=sent_bytes) for name in names
    )
    scale = f" at scale {model_scale:g}" if model_scale < 1 else ""
    return Flow(
        "zero",
        f"ZeRO stage {zero_stage} of {model}{scale}, {zero_ranks} ranks",
        ACKNOWLEDGEMENT,
        tasks,
        returns=names,
    )


def find_errors(transport: Any, options: Any, flow: Flow) -> Iterator[str]:
    if (transport.name == "collectives") != (flow.name == "zero"):
        yield f"{transport.label}: --flow zero and the transport collectives need each other: give both"


STUDY = Study(
    flows={"zero": zero},
    flags=ZeroFlags,
    find_errors=find_errors,
    part="collectives:CollectivePart",
    is_used=lambda plan: any(task.other_bytes for task in plan.task_flow.tasks),
)
