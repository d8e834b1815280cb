"""Define the flags of ChatLearn's own transport, --transport ref-queue of the object store."""

from dataclasses import dataclass
from functools import partial

from msgspec import Meta

from dataflow.plan.flag import flag

REF_QUEUE_FLAGS = "flags of --transport ref-queue"
_flag = partial(flag, REF_QUEUE_FLAGS, configuration=True)
_COUNT, _FEW = Meta(ge=1, le=10**6), Meta(ge=1, le=16)


@dataclass(frozen=True, kw_only=True)
class ChatLearnOptions:
    # fmt: off
    episode: int | None = _flag(None, "messages per episode of ChatLearn's driver loop, with new queues and a full "
        "verification at its end. Default: no episodes", int, _COUNT)
    keep_queues: bool = _flag(False, "make the queues once instead of in each --episode")
    replicas: str | None = _flag(None, "replicas per model, which receive messages round-robin: policy=2,reward=3", str,
        metavar="MODEL=N,...")
    train_global_batch: int = _flag(128, "samples per training step of --sink trainer", int, _COUNT)
    data_parallel: int = _flag(1, "data-parallel ranks per model of --sink trainer", int, _FEW)
    relay_episodes: int = _flag(1, "episodes whose samples --sink trainer uses, the newest ones", int, _FEW)
    # fmt: on

    @property
    def new_queues(self) -> bool:
        """Whether each episode starts with new queues, as in ChatLearn."""
        return bool(self.episode) and not self.keep_queues
