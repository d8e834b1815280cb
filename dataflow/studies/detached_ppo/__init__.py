"""ColossalAI's detached PPO: makers send experience to trainers, which send the weights of two models back.

    driver --> maker-1 -- experience --> trainer-1 -- actor and critic --> maker-1 -- acknowledgement --> driver

One iteration is a round: a batch of each maker, a training step of each trainer, and an update of all makers. Source:
hpcaitech/ColossalAI, applications/Chat/coati/ray and coati/experience_maker, commit b5f056636.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial

from msgspec import Meta

from dataflow.flows.flow import Flow, Task, tasks_in_turn
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message, model_fields
from dataflow.plan.flag import flag
from dataflow.studies import Study

_size = partial(flag, "detached-ppo", None, size=True)
_FEW = Meta(ge=1, le=16)


@dataclass(frozen=True, kw_only=True)
class DetachedPpoFlags:
    # fmt: off
    makers: int | None = _size("actors that make experience", int, _FEW)
    ppo_trainers: int | None = _size("trainers, which send their weights to the makers (default: 1)", int, _FEW)
    items: str | None = _size("form of the samples of an experience: views of the batch, as ColossalAI sends them, "
        "clones, or the whole batch", str, choices=("views", "clones", "batch"), size="sender")
    # fmt: on


def detached_ppo(
    makers: int = 1, ppo_trainers: int = 1, batch_size: int = 8, seq_length: int = 512, prompt_seq_len: int = 256,
    items: str = "views", model: str = "gpt2", lora_rank: int = 0, model_scale: float = 1.0,
) -> Flow:  # fmt: skip
    """Makers and trainers as in coati/ray/utils.py, get_receivers_per_sender; raise ValueError for impossible sizes.

    With more trainers than makers, a maker distributes its samples to several trainers, some of which send no weights.
    """
    if seq_length <= prompt_seq_len:
        raise ValueError("--seq-length contains the prompt: give more than --prompt-seq-len")
    making, reads = list[Task](), defaultdict[int, list[str]](list)
    for maker in range(makers):
        readers = [trainer for trainer in range(ppo_trainers) if trainer % makers == maker] or [
            maker % ppo_trainers
        ]
        if batch_size < len(readers):
            raise ValueError(
                f"--batch-size {batch_size}: a maker has {len(readers)} trainers: give as many or more"
            )
        counts = [
            len(range(index, batch_size, len(readers))) for index in range(len(readers))
        ]  # of samples, in turn
        messages = [
            experience(n, batch_size, seq_length, seq_length - prompt_seq_len, items)
            for n in counts
        ]
        making += tasks_in_turn(f"maker-{maker}", messages)
        for trainer, task in zip(readers, making[-len(readers) :], strict=True):
            reads[trainer].append(task.name)
    weights = Message(tuple(two_models(model, model_scale, lora_rank)))
    senders = {maker % ppo_trainers for maker in range(makers)}
    training = [Task(f"trainer-{trainer}", tuple(reads[trainer]), weights if trainer in senders else ACKNOWLEDGEMENT)
                for trainer in range(ppo_trainers)]  # fmt: skip
    updates = [Task(f"maker-{maker}.update", (training[maker % ppo_trainers].name,), ACKNOWLEDGEMENT,
                    actor=f"maker-{maker}") for maker in range(makers)]  # fmt: skip
    returns = [*updates, *(task for trainer, task in enumerate(training) if trainer not in senders)]
    title = f"detached PPO, makers: {makers}, trainers: {ppo_trainers}"
    tasks = (*making, *training, *updates)
    return Flow("detached-ppo", title, ACKNOWLEDGEMENT, tasks, tuple(task.name for task in returns))


def experience(count: int, batch_size: int, tokens: int, actions: int, items: str) -> Message:
    """Return `count` samples of a batch: (16 x tokens + 3 x actions + 10) bytes each.

    ColossalAI sends each sample as views of the batch, and pickling a view writes the whole batch.
    """
    fields = []
    for name, dtype, width in (
        ("sequences", "int64", tokens), ("attention_mask", "int64", tokens), ("action_log_probs", "float16", actions),
        ("action_mask", "bool", actions), ("values", "float16", 1), ("reward", "float32", 1),
        ("advantages", "float32", 1),
    ):  # fmt: skip
        if items == "batch":
            fields.append(Field(name, dtype, (count, width)))
        else:
            storage = (batch_size, width) if items == "views" else ()
            fields.append(Field(name, dtype, lengths=(width,) * count, storage=storage))
    return Message(tuple(fields))


def two_models(model: str, scale: float, lora_rank: int) -> list[Field]:
    """Return the tensors of an actor and a critic in float16. The critic has one more linear layer, with one output."""
    fields = model_fields(model, scale, lora_rank)
    if fields[0].name == "flat":  # as many bytes in float16
        fields = [replace(fields[0], shape=(4 * fields[0].shape[0],))]
    head = (
        []
        if lora_rank
        else [("critic.value_head.weight", fields[0].shape[1:]), ("critic.value_head.bias", (1,))]
    )
    halves = [
        (f"{name}.{field.name}", field.shape) for name in ("actor", "critic") for field in fields
    ]
    return [
        replace(fields[0], name=name, dtype="float16", shape=shape)
        for name, shape in [*halves, *head]
    ]


STUDY = Study(flows={"detached-ppo": detached_ppo}, flags=DetachedPpoFlags)
