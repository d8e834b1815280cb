"""Build the traffic of one optimizer step of ZeRO (arXiv 1910.02054): collectives between the ranks of a model.

    driver --> rank-1, rank-2, ...: collectives between them --> driver: acknowledgements

Gradients and parameters are float16. Each rank owns an equal part of them.
"""

from math import prod

from dataflow.flows.flow import DRIVER, Collective, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT
from dataflow.flows.models import model_fields

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all-reduce", "reduce-scatter", "all-gather"
# The gradients; gradients, then updated parameters; parameters for forward and backward pass, then gradients.
STAGES = {1: (ALL_REDUCE,), 2: (REDUCE_SCATTER, ALL_GATHER), 3: (ALL_GATHER, ALL_GATHER, REDUCE_SCATTER)}
ITEM_BYTES = 2


def zero(model: str = "gpt2", ranks: int = 4, stage: int = 2, scale: float = 1.0) -> Flow:
    """Return a step of `ranks` actors; raise ValueError for an unknown model, stage or fewer than two ranks."""
    if stage not in STAGES:
        raise ValueError(f"--stage {stage}: give 1, 2 or 3")
    if ranks < 2:
        raise ValueError(f"--ranks {ranks}: give 2 or more")
    items = sum(prod(field.shape) for field in model_fields(model, scale))
    items += -items % ranks  # equal parts
    collectives = tuple(Collective(kind, items) for kind in STAGES[stage])
    tasks = [Task(f"rank-{rank}", (DRIVER,), ACKNOWLEDGEMENT, collectives=collectives) for rank in range(1, ranks + 1)]
    title = f"ZeRO stage {stage} of {model}" + (f" at scale {scale:g}" if scale < 1 else "") + f", {ranks} ranks"
    return Flow("zero", title, ACKNOWLEDGEMENT, tuple(tasks), tuple(task.name for task in tasks))
