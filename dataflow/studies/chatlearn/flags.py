# SPDX-License-Identifier: Apache-2.0
"""Define the flags of ChatLearn's transport and of its trainers, and what they add to a flow."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import Meta

from dataflow.flows.flow import Edge, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, ITEM_BYTES, Field, Message
from dataflow.plan.flag import flag
from dataflow.studies.chatlearn.layout import ModelLayout, make_layouts, parse_counts, without_ones
from dataflow.study import Added

TRANSPORT = "store ref-queue"
DATASET = "stream-dataset"  # the task and actor that read the results with --sink trainer
TRAINED_MODELS = {"ppo": 2}  # by flow; RLHFEngine trains policy and value, the other engines policy
_flag = partial(flag, "chatlearn", configuration=True)
_COUNT = Meta(ge=1, le=10**6)
_FEW = Meta(ge=1, le=16)


def is_chatlearns_transport(transport: Any) -> bool:
    return transport.label == TRANSPORT


@dataclass(frozen=True, kw_only=True)
class ChatLearnFlags:
    padding: str | None = flag(
        "chatlearn",
        None,
        "pad to the longest sample (megatron) or to --seq-length (vllm)",
        str,
        choices=("megatron", "vllm"),
        size=True,
    )
    sink: str = _flag(
        "driver",
        "reader of the results: the driver, or a trainer that cuts them into micro-batches (and whose steps take "
        "--model-seconds trainer=50ms)",
        str,
        choices=("driver", "trainer"),
    )
    train_micro_batch: int = _flag(8, "samples per micro-batch of --sink trainer", int, _COUNT)
    episode: int | None = _flag(
        None,
        "messages per episode of ChatLearn's driver loop, with new queues and a full verification at its end. "
        "Default: no episodes",
        int,
        _COUNT,
    )
    keep_queues: bool = _flag(False, "make the queues once instead of in each --episode")
    train_global_batch: int = _flag(128, "samples per training step of --sink trainer", int, _COUNT)
    replicas: str | None = _flag(
        None,
        "replicas of models, which get whole messages in turn: policy=2,reference=3",
        str,
        normal_form=without_ones,
        metavar="MODEL=N,...",
    )
    ranks: str | None = _flag(
        None,
        "ranks of each replica of a model (tensor times pipeline parallel): policy=2. All ranks get each message, and "
        "the last one answers",
        str,
        normal_form=without_ones,
        metavar="MODEL=N,...",
    )
    trainers: int | None = _flag(
        None,
        "models that --sink trainer trains. Default: as ChatLearn, 2 for ppo (policy and value), else 1",
        int,
        _FEW,
    )
    data_parallel: int = _flag(
        1, "data-parallel ranks of each model that --sink trainer trains", int, _FEW
    )
    relay_episodes: int = _flag(
        0,
        "episodes whose samples StreamDataset keeps and gives to --sink trainer again (its relay buffer). Default: "
        "none, so that training begins before the episode is complete",
        int,
        Meta(ge=0, le=16),
    )

    def layouts(self, models: Sequence[str]) -> dict[str, ModelLayout]:
        """Return the layout of each model; raise ValueError if --replicas or --ranks cannot be read."""
        replicas = parse_counts("--replicas", self.replicas)
        ranks = parse_counts("--ranks", self.ranks)
        return make_layouts(replicas, ranks, tuple(models))

    def trained_models(self, flow: str) -> int:
        """Return how many models are trained behind a flow of this name."""
        return self.trainers or TRAINED_MODELS.get(flow, 1)

    def memory_per_message(self, edges: Sequence[Edge], flow: str) -> int:
        """Return the bytes that stay of a message: the dataset's samples, and those of each trained model.

        The samples of the dataset are views, with their storage.
        """
        kept = sum(edge.message.serialised_bytes for edge in edges)
        received = sum(edge.bytes for edge in edges)
        return kept + self.trained_models(flow) * received


def chatlearn_flags(options: Any) -> ChatLearnFlags:
    """Return the flags of this study."""
    flags: ChatLearnFlags = options.study.chatlearn
    return flags


def add_tasks(options: Any, flow: Flow) -> Added:
    """Return the flow, with a reader of its results for --sink trainer, and what further processes need.

    The reader acknowledges each iteration to the driver. Raise ValueError if --replicas or --ranks cannot be read.
    Whether the flow has the models that they name is checked later, in rules.py.
    """
    flags = chatlearn_flags(options)
    layouts = flags.layouts(flow.actors)
    further = sum(layout.processes - 1 for layout in layouts.values())
    memory_bytes = memory_of_further_processes(flow, layouts, options.in_flight)
    if flags.sink != "trainer":
        return Added(flow, memory_bytes=memory_bytes, processes=further)
    dataset = Task(DATASET, flow.returns, ACKNOWLEDGEMENT)
    trained = replace(flow, tasks=(*flow.tasks, dataset), returns=(DATASET,))
    edges = trained.edges_to(DATASET)
    kept_episodes = max(1, flags.relay_episodes)
    memory_per_message = flags.memory_per_message(edges, flow.name)
    memory_bytes += kept_episodes * options.group_size * memory_per_message
    stored_bytes = kept_episodes * sum(micro_batch_bytes(edge.message) for edge in edges)
    trainers = flags.trained_models(flow.name) * flags.data_parallel
    return Added(
        trained,
        timed_names=("trainer",),
        stored_bytes=stored_bytes,
        memory_bytes=memory_bytes,
        processes=further,
        cpu_processes=trainers,
    )


def memory_of_further_processes(flow: Flow, layouts: dict[str, ModelLayout], in_flight: int) -> int:
    """Return the bytes that replicas and ranks keep besides the first process of each model."""
    total = 0
    for task in flow.tasks:
        pool = flow.slots(in_flight) * task.sends.bytes
        inputs = (in_flight + 1) * sum(edge.bytes for edge in flow.edges_to(task.name))
        total += (layouts[task.actor].processes - 1) * (pool + inputs)
    return total


def micro_batch_bytes(message: Message) -> int:
    """Return the bytes of a message as micro-batches, in which all samples are as long as the longest one."""
    return sum(padded_bytes(field) for field in message.fields)


def padded_bytes(field: Field) -> int:
    largest = max(map(math.prod, field.shapes))
    return ITEM_BYTES[field.dtype] * len(field.shapes) * largest
