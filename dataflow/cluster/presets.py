# SPDX-License-Identifier: Apache-2.0
"""Read the presets, which presets.toml describes with their sources, and make their flows."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import ceil
from pathlib import Path

import msgspec

from dataflow.cluster.scaling import ROLLOUT, TRAINER
from dataflow.flows.flow import Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, flat_message
from dataflow.flows.parser import parse_flow

GPUS_PER_NODE = 8
LINK = "400gbit"


class ClusterPreset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A known case: its flow, how many rollouts and trainers it has, and where that is from."""

    title: str
    flow: str
    rollouts: int
    trainers: int
    gpus: Mapping[str, int]  # of one rollout, and of one trainer
    source: str
    assumed: str
    buckets: int = 1  # in which the message is sent, one after the other

    @property
    def nodes(self) -> int:
        return self.count_nodes(self.rollouts, self.trainers)

    def count_nodes(self, rollouts: int, trainers: int) -> int:
        """Return how many nodes have the GPUs of so many rollouts and trainers."""
        return ceil(self.count_gpus(rollouts, trainers) / GPUS_PER_NODE)

    def count_gpus(self, rollouts: int, trainers: int) -> int:
        return rollouts * self.gpus[ROLLOUT] + trainers * self.gpus[TRAINER]

    def make_flow(self) -> Flow:
        """Return the flow with one rollout and one trainer."""
        flow = parse_flow(self.flow)
        return flow if self.buckets == 1 else in_buckets(flow, self.buckets)


def in_buckets(flow: Flow, buckets: int) -> Flow:
    """Return a flow of two tasks with one of each per bucket. The sender goes on while the reader reads."""
    sender, reader = flow.tasks
    message = flat_message(sender.sends.bytes // buckets)
    tasks: list[Task] = []
    before = sender.reads
    for number in range(1, buckets + 1):
        bucket = f"{sender.name}.{number}"
        tasks.append(Task(bucket, before, message, sender.actor))
        tasks.append(Task(f"{reader.name}.{number}", (bucket,), ACKNOWLEDGEMENT, reader.actor))
        before = (bucket,)
    returns = tuple(task.name for task in tasks if task.actor == reader.actor)
    return replace(flow, tasks=tuple(tasks), returns=returns)


@cache
def load_presets() -> dict[str, ClusterPreset]:
    text = Path(__file__).with_name("presets.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, ClusterPreset])
