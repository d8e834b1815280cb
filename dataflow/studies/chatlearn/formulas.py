# SPDX-License-Identifier: Apache-2.0
"""Compute what ChatLearn does by its formulas, to compare it with what a record has.

They were read from the source of alibaba/ChatLearn at 85ee7dfe (runtime/executor.py, environment.py and trainer.py, and
examples/megatron/models), and confirmed by running it. They know nothing of this project's messages and queues.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
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
    if flags.sink != "trainer":
        return EpisodeShape(messages, inputs, edges, results)
    trained_samples = messages * samples * max(1, flags.relay_episodes)
    steps = math.ceil(trained_samples / flags.train_global_batch)
    trained_models = flags.trained_models(flow.name)
    return EpisodeShape(
        messages, inputs, edges, results, trained_models, steps, flags.data_parallel
    )


def count_operations(shape: EpisodeShape) -> dict[str, int]:
    """Return ChatLearn's operations per episode. The payload of a message never enters its driver."""
    training = shape.trained_models * shape.steps * shape.data_parallel
    gets = shape.messages * shape.queues
    return {
        "queue_actors": 1 + shape.queues,
        "driver_put": gets + shape.messages,
        "driver_get": gets,
        "driver_payload_gets": 0,
        "trainer_put": training,
        "trainer_get": training,
    }


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
    """Return the bytes of each message of a flow by ChatLearn's formulas, at the sizes of a record."""
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
