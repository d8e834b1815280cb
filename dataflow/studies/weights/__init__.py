# SPDX-License-Identifier: Apache-2.0
"""Updates of the weights of a model: trainers send them to rollouts, which serve them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from msgspec import Meta

from dataflow.plan.flag import flag
from dataflow.studies.weights.flow import changes_flow, weights
from dataflow.study import Study
from dataflow.units import parse_bytes

_size = partial(flag, "weights", None, size=True)
_FEW = Meta(ge=1, le=64)


@dataclass(frozen=True, kw_only=True)
class WeightsFlags:
    # fmt: off
    receivers: int | None = _size("rollouts that receive all weights", int, _FEW)
    senders: int | None = _size("trainers, each of which sends its part of the tensors", int, _FEW)
    bucket_size: int | None = _size("cut the weights into messages of at most this size, or of one larger tensor, such "
        "as 100MiB; 1B sends each tensor by itself. Default: one message per sender", parse_bytes,
        Meta(ge=1, le=10**15), size="sender")
    sharded: bool | None = _size("each trainer sends its part only to the rollout of the same number")
    changed: float | None = _size("share of the weights that change from one update to the next", float,
        Meta(gt=0, le=1))
    # fmt: on


def find_errors(transport: Any, options: Any, flow: Any) -> Iterator[str]:
    """Yield one line for each reason why --message indices does not fit; none for another form of messages."""
    if options.message != "indices":
        return
    if not flow.has_parameters or flow.is_flat:
        yield f"--message indices: {flow.name} does not send the tensors of a model: leave it out"
    fields = chain.from_iterable(message.fields for message in flow.messages)
    values = [math.prod(field.shape) for field in fields]
    if max(values) >= 2**31:
        yield "--message indices: a tensor has more than 2^31 values, and indices are int32: leave it out"
    if transport.requirements.shared_memory:
        yield f"--message indices: {transport.label} sends all of its memory: leave it out"


STUDY = Study(
    flows={"weights": weights},
    flags=WeightsFlags,
    forms={"indices": changes_flow},
    find_errors=find_errors,
    is_used=lambda plan: plan.task_flow.has_parameters,
    part="actor:WeightsPart",
    collect="updates:collect_updates",
)
