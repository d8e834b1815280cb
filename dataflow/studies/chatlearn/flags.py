"""Define the flags of ChatLearn's own transport and of its trainers, and what they need."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Meta

from dataflow.flows.flow import Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, ITEM_BYTES
from dataflow.plan.flag import flag, parse_assignments

if TYPE_CHECKING:  # Options has these flags and those of CoreOptions
    from dataflow.plan.options import CoreOptions as Base
else:
    Base = object

TRANSPORT = "store ref-queue"
DATASET = "stream-dataset"  # the task and actor that read the results with --sink trainer
MAX_SAMPLES = 100_000  # per message that a trainer cuts into samples
MAX_PROCESSES = 64  # per actor
TRAINER_FLAGS = ("train_micro_batch", "train_global_batch", "data_parallel", "trainers", "relay_episodes")
OTHER_TRANSPORTS = ("sink", "train_micro_batch")  # have these flags too
_flag = partial(flag, "chatlearn", configuration=True)
_COUNT, _FEW = Meta(ge=1, le=10**6), Meta(ge=1, le=16)


@dataclass(frozen=True, kw_only=True)
class ChatLearnFlags(Base):
    # fmt: off
    padding: str | None = flag("chatlearn", None, "pad to the longest sample (megatron) or to --seq-length (vllm)", str,
        choices=("megatron", "vllm"), size=True)
    sink: str = _flag("driver", "reader of the results: the driver, or a trainer that cuts them into micro-batches "
        "(and whose steps take --model-seconds trainer=50ms)", str, choices=("driver", "trainer"))
    train_micro_batch: int = _flag(8, "samples per micro-batch of --sink trainer", int, _COUNT)
    episode: int | None = _flag(None, "messages per episode of ChatLearn's driver loop, with new queues and a full "
        "verification at its end. Default: no episodes", int, _COUNT)
    keep_queues: bool = _flag(False, "make the queues once instead of in each --episode")
    replicas: str | None = _flag(None, "replicas per model, which receive messages round-robin: policy=2,reward=3", str,
        metavar="MODEL=N,...")
    ranks: str | None = _flag(None, "ranks per replica of a model (tensor times pipeline parallel): policy=4. All "
        "ranks receive each message, and the last one sends the result", str, metavar="MODEL=N,...")
    trainers: int = _flag(1, "models that --sink trainer trains, such as 2 for PPO: policy and value", int, _FEW)
    train_global_batch: int = _flag(128, "samples per training step of --sink trainer", int, _COUNT)
    data_parallel: int = _flag(1, "data-parallel ranks per model of --sink trainer", int, _FEW)
    relay_episodes: int = _flag(1, "episodes whose samples --sink trainer uses, the newest ones", int, _FEW)
    # fmt: on

    @property
    def group_size(self) -> int:
        return self.episode or self.check_every or self.in_flight

    def process_counts(self, actor: str) -> tuple[int, int]:
        replicas, ranks = (parse_assignments(f"--{name}", getattr(self, name), int) for name in ("replicas", "ranks"))
        return replicas.get(actor, 1), ranks.get(actor, 1)

    def tasks_that_run(self, flow: Flow) -> Flow:
        """Return the flow with a reader of its results at the end, which acknowledges each iteration to the driver."""
        if self.sink != "trainer":
            return flow
        return replace(flow, tasks=(*flow.tasks, Task(DATASET, flow.returns, ACKNOWLEDGEMENT)), returns=(DATASET,))

    def timed_actors(self, flow: Flow) -> tuple[str, ...]:
        return (*flow.actors, "trainer") if self.sink == "trainer" else flow.actors

    def added_store_bytes(self, flow: Flow) -> int:
        """Return the bytes of the micro-batches of ChatLearn's dataset, all samples as long as the longest."""
        if self.sink != "trainer" or self.transport != "ref-queue":
            return 0
        fields = [field for edge in flow.edges_to(DATASET) for field in edge.message.fields]
        padded = [ITEM_BYTES[f.dtype] * len(f.shapes) * max(map(math.prod, f.shapes)) for f in fields]
        return self.relay_episodes * sum(padded)

    def added_memory_bytes(self, flow: Flow) -> int:
        """Return the bytes of the samples that the dataset keeps, views with their storage, and of the trainers."""
        if self.sink != "trainer":
            return 0
        edges = flow.edges_to(flow.tasks[-1].name)
        per_iteration = sum(edge.message.serialised_bytes + edge.bytes * self.trainers for edge in edges)
        return self.group_size * self.relay_episodes * per_iteration


def find_errors(transport: Any, options: Any, flow: Flow) -> Iterator[str]:
    is_chatlearns = transport.label == TRANSPORT
    for name in ChatLearnFlags.__dataclass_fields__:
        flag_name = "--" + name.replace("_", "-")
        if name in options.configuration_flags and not is_chatlearns and name not in OTHER_TRANSPORTS:
            yield f"{flag_name} is a flag of --transport ref-queue: give this transport, or leave it out"
        if name in options.configuration_flags and name in TRAINER_FLAGS and options.sink != "trainer":
            yield f"{flag_name} is a flag of the trainer: give --sink trainer too"
    if is_chatlearns:
        yield from episode_errors(options, flow)
    if options.sink == "trainer":
        results = [flow.message(name) for name in flow.returns]
        counts = {count for message in results for count in message.sample_counts}
        has_samples = len(counts) == 1 and max(counts) <= MAX_SAMPLES and not any(m.is_flat for m in results)
        if not has_samples or options.message not in ("fields", "packed", None):
            form = options.message or "flat"
            yield (f"--sink trainer: the {form} messages of {flow.name} cannot be cut into samples: "
                   "give --message fields, or one of ChatLearn's flows (--list-flows)")  # fmt: skip


def episode_errors(options: Any, flow: Flow) -> Iterator[str]:
    group = options.group_size
    if options.episode and options.check_every:
        yield "--check-every: every episode of --episode ends with a full verification: leave it out"
    if options.in_flight < group and (options.in_flight > 1 or options.sink == "trainer"):
        yield f"--in-flight {options.in_flight}: ChatLearn sends a whole episode at once: give --in-flight {group}"
    for name in ("replicas", "ranks"):
        for model in parse_assignments(f"--{name}", getattr(options, name), int):
            if model not in flow.actors:
                yield f"--{name}: there is no model {model}: give {', '.join(flow.actors)}"
    for model in flow.actors:
        replicas, ranks = options.process_counts(model)
        if min(replicas, ranks) < 1 or replicas * ranks > MAX_PROCESSES:
            yield f"--replicas and --ranks: {model} has {replicas * ranks} processes: give 1 to {MAX_PROCESSES}"
    needed = group * options.relay_episodes  # a whole episode with the samples of those before it
    if options.iterations < needed:
        yield f"--iterations {options.iterations}: give {needed} (--episode times --relay-episodes) or more"
    step = options.train_micro_batch * options.data_parallel
    if options.sink == "trainer" and options.train_global_batch % step:
        yield (f"--train-global-batch {options.train_global_batch}: give a multiple of {step} (--train-micro-batch "
               "times --data-parallel)")  # fmt: skip
