# SPDX-License-Identifier: Apache-2.0
"""Compute what ChatLearn does by its formulas, to compare it with what a record has.

They were read from the source of alibaba/ChatLearn at 85ee7dfe (runtime/executor.py, environment.py and trainer.py, and
examples/megatron/models). Those of queue actors, and of puts and gets of the driver and of the trainer, were also
confirmed by running it. They know nothing of this project's messages and queues.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from dataflow.flows.chatlearn_messages import CHARACTERS_PER_TOKEN, SampleBatch
from dataflow.flows.flow import DRIVER, Flow


@dataclass(frozen=True)
class EpisodeShape:
    """The numbers on which the operations of an episode depend."""

    messages: int  # N
    inputs: int  # C, models that the input feeds
    edges: int  # E, between models
    results: int  # R, models whose results return
    trained_models: int = 0  # 0 without a trainer
    steps: int = 0  # T, of training
    data_parallel: int = 1
    ranks: int = 0  # of one replica of each model, together
    micro_batches: int = 0  # of a training step, for all data-parallel ranks
    has_relay_buffer: bool = False

    @property
    def queues(self) -> int:
        return self.inputs + self.edges + self.results


def shape_of(flow: Flow, options: Any, samples: int) -> EpisodeShape:
    """Return the shape of an episode of a flow, whose messages have so many samples."""
    flags = options.study.chatlearn
    messages = options.group_size
    inputs = len(flow.edges_from(DRIVER))
    results = len(flow.returns)
    edges = len(flow.edges) - inputs - results
    ranks = sum(layout.ranks for layout in flags.layouts(flow.actors).values())
    without_trainer = EpisodeShape(messages, inputs, edges, results, ranks=ranks)
    if flags.sink != "trainer":
        return without_trainer
    trained_samples = messages * samples * max(1, flags.relay_episodes)
    return replace(
        without_trainer,
        trained_models=flags.trained_models(flow.name),
        steps=math.ceil(trained_samples / flags.train_global_batch),
        data_parallel=flags.data_parallel,
        micro_batches=flags.train_global_batch // flags.train_micro_batch,
        has_relay_buffer=flags.relay_episodes > 0,
    )


def count_operations(shape: EpisodeShape) -> dict[str, int]:
    """Return ChatLearn's operations per episode. The payload of a message never enters its driver.

    StreamDataset asks for the size before each message. Before the first one, it asks once more, or with a relay buffer
    as often again and once more, until the queue is empty (data/data.py, `EpisodeRelayBuffer.sync`).
    """
    training = shape.trained_models * shape.steps * shape.data_parallel
    messages = shape.messages
    gets = messages * shape.queues
    asked_before = messages + 1 if shape.has_relay_buffer else 1
    return {
        "queue_actors": 1 + shape.queues,
        "driver_put": gets + messages,
        "driver_get": gets,
        "driver_qsize": messages + 1,
        "driver_payload_gets": 0,
        "model_tasks": messages * shape.ranks,
        "stream_dataset_get": messages,
        "stream_dataset_qsize": messages + asked_before,
        "trainer_queue_actors": 1 + shape.trained_models if shape.trained_models else 0,
        "trainer_put": training,
        "trainer_get": training,
        "trainer_blocking_gets": shape.steps * shape.micro_batches,
    }


def find_turns(replicas: int, earlier: int, episodes: Sequence[int]) -> list[list[int]]:
    """Return which replica gets each message, by episode: they take turns, which go on across episodes.

    `earlier` messages came before these episodes, whose numbers of messages are given.
    """
    turns: list[list[int]] = []
    for messages in episodes:
        turns.append([number % replicas for number in range(earlier, earlier + messages)])
        earlier += messages
    return turns


# Formulas of a message: B samples, L (DPO: S) padded length, p prompt tokens, a response tokens.
MESSAGE_FORMULAS = {
    "input": "8Σp",
    "policy": "13BL - 4B + 8Σp + characters",
    "reference": "4B(L-1)",
    "value": "4BL",
    "reward": "17BL + 8Σa + 8Σp + 9B + characters",
}
PPO_FORMULAS = MESSAGE_FORMULAS | {"reward": "17BL + 12Σa + 8Σp + 9B + characters"}
DPO_FORMULAS = {"input": "24BS + 8B", "reference": "24BS + 16B"}


def find_formulas(flow: str) -> Mapping[str, str]:
    """Return ChatLearn's formula of each message of a flow, as text."""
    return {"ppo": PPO_FORMULAS, "dpo": DPO_FORMULAS}.get(flow, MESSAGE_FORMULAS)


def count_bytes(flow: str, sizes: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes of each message of a flow by ChatLearn's formulas, at the sizes of a record.

    For every flow but dpo, these are all messages that ChatLearn has, also those that the flow does not have. A size
    that is missing has the default of SampleBatch.
    """
    names = [field.name for field in fields(SampleBatch)]
    batch = SampleBatch(**{name: sizes[name] for name in names if name in sizes})
    samples = batch.batch_size
    tokens = samples * batch.padded
    if flow == "dpo":
        return {"input": 24 * tokens + 8 * samples, "reference": 24 * tokens + 16 * samples}
    prompts = sum(batch.lengths["prompts"])
    responses = sum(batch.lengths["responses"])
    prompt_characters = CHARACTERS_PER_TOKEN * prompts
    response_characters = CHARACTERS_PER_TOKEN * responses
    policy = 13 * tokens - 4 * samples + 8 * prompts + prompt_characters + response_characters
    reward = 17 * tokens + 8 * responses + 8 * prompts + 9 * samples + prompt_characters
    if flow == "ppo":
        reward += 4 * responses  # action_values
    return {
        "input": 8 * prompts,
        "policy": policy,
        "reference": 4 * (tokens - samples),
        "value": 4 * tokens,
        "reward": reward,
    }
