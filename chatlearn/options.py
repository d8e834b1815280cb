"""Define the flags of ChatLearn's own transport, --transport ref-queue of the object store."""

from dataclasses import dataclass
from functools import partial

from msgspec import Meta

from common.plan.options import flag, parse_assignments

_flag = partial(flag, "flags of --transport ref-queue", configuration=True)


@dataclass(frozen=True, kw_only=True)
class ChatLearnOptions:
    """How ChatLearn's driver runs the models of a flow."""

    # fmt: off
    episode: int | None = _flag(None, "messages per episode of ChatLearn's driver loop, with new queues and a full "
        "verification at its end. Default: no episodes", int, Meta(ge=1, le=10**6))
    keep_queues: bool = _flag(False, "make the queues once, and not in every --episode")
    colocated: bool = _flag(False, "a model starts when the one before it has ended the episode, as on the same GPUs")
    replicas: str | None = _flag(None, "replicas per model, which receive messages in turn: policy=2,reward=3", str,
        metavar="MODEL=N,...")
    ranks: str | None = _flag(None, "ranks per replica of a model (tensor times pipeline parallel): policy=4. All "
        "ranks receive each message, and the last one sends the result", str, metavar="MODEL=N,...")
    train_global_batch: int = _flag(128, "samples per training step of --sink trainer", int, Meta(ge=1, le=10**6))
    data_parallel: int = _flag(1, "data-parallel ranks per model of --sink trainer", int, Meta(ge=1, le=16))
    trainers: int | None = _flag(None, "models that --sink trainer trains. Default: 2 (policy and value) for the flow "
        "ppo, otherwise 1", int, Meta(ge=1, le=4))
    relay_episodes: int = _flag(1, "newest episodes whose samples --sink trainer uses", int, Meta(ge=1, le=16))
    # fmt: on

    @property
    def new_queues(self) -> bool:
        """Whether each episode starts with new queues, as in ChatLearn."""
        return bool(self.episode) and not self.keep_queues

    def counts(self, name: str) -> dict[str, int]:
        """Return the numbers of "replicas" or "ranks" by model."""
        return parse_assignments(f"--{name}", getattr(self, name), int)

    def trainer_count(self, flow: str) -> int:
        """Return the number of models that are trained."""
        return self.trainers or (2 if flow == "ppo" else 1)
