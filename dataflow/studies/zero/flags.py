"""Define the flags of ZeRO, and what it needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import Meta

from dataflow.plan.flag import flag
from dataflow.studies.model_flags import ModelFlags

_size = partial(flag, "zero", None)


@dataclass(frozen=True, kw_only=True)
class ZeroFlags(ModelFlags):
    # fmt: off
    stage: int | None = _size("stage of ZeRO: 1, 2 or 3", int, Meta(ge=1, le=3), size=True)
    zero_ranks: int | None = _size("ranks of the model (default: 4)", int, Meta(ge=2, le=64), size="ranks")
    # fmt: on


def find_errors(transport: Any, options: Any, flow: Any) -> Iterator[str]:
    if transport.requirements.collectives != flow.has_collectives:
        yield f"{transport.label}: --flow zero and the collectives of rdt and torch need each other: give both"
