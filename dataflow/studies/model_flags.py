"""Define the flags of the model whose tensors a flow sends, which several studies have."""

from dataclasses import dataclass

from msgspec import Meta

from dataflow.flows.models import MODELS
from dataflow.plan.flag import flag


@dataclass(frozen=True, kw_only=True)
class ModelFlags:
    # fmt: off
    model: str | None = flag("model", None, f"tensors of flows of models: {', '.join(MODELS)}, or the size of one flat "
        "tensor, such as 1GiB", str, size=True)
    model_scale: float | None = flag("model", None, "multiply the first dimension of all tensors of --model by this "
        "share", float, Meta(gt=0, le=1), size="scale")
    lora_rank: int | None = flag("model", None, "send adapters of this rank for the matrices of the layers instead of "
        "all weights", int, Meta(ge=1, le=4096), size=True)
    # fmt: on
