"""ColossalAI's detached PPO: makers send experience to trainers, which send the weights of two models back.

    driver --> maker-1 -- experience --> trainer-1 -- actor and critic --> maker-1 -- acknowledgement --> driver

One iteration is a round: a batch of each maker, a training step of each trainer, and an update of all makers. Source:
hpcaitech/ColossalAI, applications/Chat/coati/ray and coati/experience_maker, commit b5f056636.
"""

from dataclasses import dataclass, replace
from functools import partial

from msgspec import Meta

from dataflow.flows.flow import DRIVER, Flow, Task, of_sizes
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message, model_fields
from dataflow.plan.flag import flag
from dataflow.studies import Study

ITEMS = ("views", "clones", "batch")
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


@dataclass(frozen=True)
class Sizes:
    """The sizes of the flow, which are flags."""

    makers: int = 1
    ppo_trainers: int = 1
    batch_size: int = 8
    seq_length: int = 512
    prompt_seq_len: int = 256
    items: str = "views"
    model: str = "gpt2"
    lora_rank: int = 0
    model_scale: float = 1.0


def detached_ppo(sizes: Sizes) -> Flow:
    """Makers and trainers as in coati/ray/utils.py, get_receivers_per_sender; raise ValueError for impossible sizes.

    With more trainers than makers, a maker distributes its samples to several trainers, some of which send no weights.
    """
    makers, trainers = range(sizes.makers), range(sizes.ppo_trainers)
    if sizes.seq_length <= sizes.prompt_seq_len:
        raise ValueError("--seq-length contains the prompt: give more than --prompt-seq-len")
    making = [task for maker in makers for task in making_tasks(sizes, maker)]
    reads = {trainer: [task.name for task, reader in making if reader == trainer] for trainer in trainers}
    weights = Message(tuple(two_models(sizes.model, sizes.model_scale, sizes.lora_rank)))
    senders = {maker % sizes.ppo_trainers for maker in makers}
    training = [Task(f"trainer-{trainer}", tuple(reads[trainer]), weights if trainer in senders else ACKNOWLEDGEMENT)
                for trainer in trainers]  # fmt: skip
    updates = [Task(f"maker-{maker}.update", (training[maker % sizes.ppo_trainers].name,), ACKNOWLEDGEMENT,
                    actor=f"maker-{maker}") for maker in makers]  # fmt: skip
    tasks = (*(task for task, _ in making), *training, *updates)
    returns = [*updates, *(training[trainer] for trainer in trainers if trainer not in senders)]
    title = f"detached PPO, makers: {sizes.makers}, trainers: {sizes.ppo_trainers}"
    return Flow("detached-ppo", title, ACKNOWLEDGEMENT, tasks, tuple(task.name for task in returns))


def making_tasks(sizes: Sizes, maker: int) -> list[tuple[Task, int]]:
    """Return a task for each trainer of a maker, and the number of the trainer. Samples are distributed in turn."""
    count, trainers = sizes.batch_size, sizes.ppo_trainers
    readers = [trainer for trainer in range(trainers) if trainer % sizes.makers == maker] or [maker % trainers]
    if count < len(readers):
        raise ValueError(f"--batch-size {count}: a maker has {len(readers)} trainers: give as many or more")
    tasks: list[tuple[Task, int]] = []
    before = DRIVER
    for index, trainer in enumerate(readers):
        samples = len(range(index, count, len(readers)))
        name = f"maker-{maker}" + (f".{index}" if len(readers) > 1 else "")
        message = experience(samples, count, sizes.seq_length, sizes.seq_length - sizes.prompt_seq_len, sizes.items)
        tasks.append((Task(name, (before,), message, actor=f"maker-{maker}"), trainer))
        before = name
    return tasks


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
    head = [] if lora_rank else [("critic.value_head.weight", fields[0].shape[1:]), ("critic.value_head.bias", (1,))]
    halves = [(f"{name}.{field.name}", field.shape) for name in ("actor", "critic") for field in fields]
    return [replace(fields[0], name=name, dtype="float16", shape=shape) for name, shape in [*halves, *head]]


STUDY = Study(flows={"detached-ppo": of_sizes(Sizes, detached_ppo)}, flags=DetachedPpoFlags)
