"""ColossalAI's detached PPO: experience makers and trainers, which send their weights back."""

from dataclasses import dataclass
from functools import partial

from msgspec import Meta

from dataflow.flows.flow import of_sizes
from dataflow.plan.flag import flag
from dataflow.studies import Study
from dataflow.studies.detached_ppo.flow import ITEMS, Sizes, detached_ppo

_size = partial(flag, "detached-ppo", None, size=True)
_FEW = Meta(ge=1, le=16)


@dataclass(frozen=True, kw_only=True)
class DetachedPpoFlags:
    # fmt: off
    makers: int | None = _size("actors that make experience", int, _FEW)
    ppo_trainers: int | None = _size("trainers, which send their weights to the makers (default: 1)", int, _FEW)
    items: str | None = _size("form of the samples of an experience: views of the batch, as ColossalAI sends them, "
        "clones, or the whole batch", str, choices=ITEMS, size="sender")
    # fmt: on


STUDY = Study(
    flows={"detached-ppo": of_sizes(Sizes, detached_ppo)},
    flags=DetachedPpoFlags,
)
