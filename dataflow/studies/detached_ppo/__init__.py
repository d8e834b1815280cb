# SPDX-License-Identifier: Apache-2.0
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
from dataflow.flows.sizes import of_sizes
from dataflow.plan.flag import flag
from dataflow.study import Study

_size = partial(flag, "detached-ppo", None, size=True)
_FEW = Meta(ge=1, le=16)


@dataclass(frozen=True, kw_only=True)
class DetachedPpoFlags:
    """Sizes of the flow `detached-ppo`."""

    makers: int | None = _size("actors that make experience", int, _FEW)
    ppo_trainers: int | None = _size(
        "trainers, which send their weights to the makers (default: 1)", int, _FEW
    )
    items: str | None = _size(
        "form of the samples of an experience: views of the batch, as ColossalAI sends them, "
        "clones, or the whole batch",
        str,
        choices=("views", "clones", "batch"),
        size="sender",
    )


@dataclass(frozen=True)
class DetachedPpoSizes:
    """The sizes of the flow, with their defaults: its actors, the samples of a maker, and the tensors of its models."""

    makers: int = 1
    ppo_trainers: int = 1
    batch_size: int = 8
    seq_length: int = 512
    prompt_seq_len: int = 256
    items: str = "views"
    model: str = "gpt2"
    lora_rank: int = 0
    model_scale: float = 1.0


def build_detached_ppo(sizes: DetachedPpoSizes) -> Flow:
    """Return the flow of makers and trainers, as in coati/ray/utils.py, get_receivers_per_sender.

    With more trainers than makers, a maker distributes its samples to several trainers, some of which send no weights.
    Only the flag --items checks `items`: of another text than "views" and "batch", the samples are clones. Raise
    ValueError for an unknown model, for a prompt as long as a sample, and if a trainer would get no sample.
    """
    makers = sizes.makers
    ppo_trainers = sizes.ppo_trainers
    actions = sizes.seq_length - sizes.prompt_seq_len
    if actions <= 0:
        raise ValueError("--seq-length contains the prompt: give more than --prompt-seq-len")
    batch = MakerBatch(sizes.batch_size, sizes.seq_length, actions, sizes.items)
    making: list[Task] = []
    reads = defaultdict[int, list[str]](list)  # trainer -> tasks of makers
    for maker in range(makers):
        readers = trainers_of(maker, makers, ppo_trainers)
        tasks = tasks_in_turn(f"maker-{maker}", split_batch(batch, len(readers)))
        for trainer, task in zip(readers, tasks, strict=True):
            reads[trainer].append(task.name)
        making += tasks
    models = two_models(sizes.model, sizes.model_scale, sizes.lora_rank)
    weights = Message(tuple(models))
    senders = {maker % ppo_trainers for maker in range(makers)}
    training = []
    for trainer in range(ppo_trainers):
        message = weights if trainer in senders else ACKNOWLEDGEMENT
        training.append(Task(f"trainer-{trainer}", tuple(reads[trainer]), message))
    updates = update_tasks(makers, training)
    silent = [task for trainer, task in enumerate(training) if trainer not in senders]
    returns = tuple(task.name for task in [*updates, *silent])
    title = f"detached PPO, makers: {makers}, trainers: {ppo_trainers}"
    return Flow("detached-ppo", title, ACKNOWLEDGEMENT, (*making, *training, *updates), returns)


@dataclass(frozen=True)
class MakerBatch:
    """The samples that a maker makes per round."""

    size: int
    tokens: int  # of a sample, with the prompt
    actions: int  # tokens of the answer
    items: str  # form of the samples: --items


def trainers_of(maker: int, makers: int, trainers: int) -> list[int]:
    """Return the trainers that a maker sends its samples to."""
    own = [trainer for trainer in range(trainers) if trainer % makers == maker]
    return own or [maker % trainers]


def update_tasks(makers: int, training: list[Task]) -> list[Task]:
    """Return a task per maker, which gets the weights of one trainer."""
    tasks = []
    for maker in range(makers):
        actor = f"maker-{maker}"
        trainer = training[maker % len(training)]
        task = Task(f"{actor}.update", (trainer.name,), ACKNOWLEDGEMENT, actor=actor)
        tasks.append(task)
    return tasks


def split_batch(batch: MakerBatch, trainers: int) -> list[Message]:
    """Return a message per trainer, which get the samples in turn; raise ValueError if one gets none."""
    if batch.size < trainers:
        raise ValueError(
            f"--batch-size {batch.size}: a maker has {trainers} trainers: give as many or more"
        )
    counts = [len(range(first, batch.size, trainers)) for first in range(trainers)]
    messages = []
    for count in counts:
        message = experience(count, batch.size, batch.tokens, batch.actions, batch.items)
        messages.append(message)
    return messages


def experience(count: int, batch_size: int, tokens: int, actions: int, items: str) -> Message:
    """Return `count` samples of a batch: (16 x tokens + 3 x actions + 10) bytes each.

    ColossalAI sends each sample as views of the batch, and pickling a view writes the whole batch. `items` is "views",
    "clones", or "batch" for tensors with all samples.
    """
    columns = (
        ("sequences", "int64", tokens),
        ("attention_mask", "int64", tokens),
        ("action_log_probs", "float16", actions),
        ("action_mask", "bool", actions),
        ("values", "float16", 1),
        ("reward", "float32", 1),
        ("advantages", "float32", 1),
    )
    fields = []
    for name, dtype, width in columns:
        if items == "batch":
            field = Field(name, dtype, (count, width))
        else:
            storage = (batch_size, width) if items == "views" else ()
            field = Field(name, dtype, lengths=(width,) * count, storage=storage)
        fields.append(field)
    return Message(tuple(fields))


def two_models(model: str, scale: float, lora_rank: int) -> list[Field]:
    """Return the tensors of an actor and a critic in float16; raise ValueError for an unknown model.

    Without `lora_rank`, the critic has one more linear layer, with one output.
    """
    fields = model_fields(model, scale, lora_rank)
    first = fields[0]
    if first.name == "flat":  # as many bytes in float16
        fields = [replace(first, shape=(4 * first.shape[0],))]
    shapes = {}
    for model_name in ("actor", "critic"):
        for field in fields:
            shapes[f"{model_name}.{field.name}"] = field.shape
    if not lora_rank:
        shapes["critic.value_head.weight"] = fields[0].shape[1:]
        shapes["critic.value_head.bias"] = (1,)
    tensors = []
    for name, shape in shapes.items():
        tensor = replace(fields[0], name=name, dtype="float16", shape=shape)
        tensors.append(tensor)
    return tensors


STUDY = Study(
    flows={"detached-ppo": of_sizes(DetachedPpoSizes, build_detached_ppo)}, flags=DetachedPpoFlags
)
