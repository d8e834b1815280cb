# SPDX-License-Identifier: Apache-2.0
"""Count the operations of ChatLearn's driver and dataset where they happen, and the bytes of its messages."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch

from dataflow.flows.flow import DRIVER
from dataflow.flows.message import NUMBER_BYTES
from dataflow.studies.chatlearn.flags import DATASET, chatlearn_flags
from dataflow.study import Part

# The operations that every record has, also if there were none.
OPERATIONS = (
    "queue_actors",  # made by the driver, without those of trainers
    "driver_put",  # into a queue
    "driver_get",  # from a queue
    "driver_qsize",
    "driver_payload_gets",  # messages whose bytes the driver fetched
    "model_tasks",  # calls of processes of models
    "stream_dataset_get",
    "stream_dataset_qsize",
    "trainer_queue_actors",
    "trainer_put",
    "trainer_get",
    "trainer_blocking_gets",  # waits for StreamDataset, one per micro-batch
)
INPUT = "input"  # the name of the driver's own message, as in ChatLearn's dataset
PICKLED_FLOAT_BYTES = 9  # of a Python float: an opcode and 8 bytes
ORDERED_EPISODES = 2  # timed episodes of which the order of the replicas is recorded


class Measured(msgspec.Struct, forbid_unknown_fields=True):
    """What a record has of ChatLearn's transport."""

    operations: dict[str, int] = {}  # of one timed episode; all full ones have the same numbers
    message_bytes: dict[str, int] = {}  # model -> bytes of one message, as its reader got it
    replica_order: dict[str, list[list[int]]] = {}  # model -> replica of each message, by episode
    received_messages: dict[str, int] = {}  # process -> messages of all timed episodes


@dataclass
class GroupCounts:
    """What one worker counted in a group of iterations, which is an episode with --episode."""

    operations: Counter[str] = field(default_factory=Counter)
    messages: int = 0  # received, and each once however many inputs it has
    message_bytes: dict[str, int] = field(default_factory=dict)
    replica_order: dict[str, list[int]] = field(default_factory=dict)


Group = tuple[Mapping[str, GroupCounts], bool]  # by worker, and whether the group is timed


class CountingPart(Part):
    """Count for one worker. Inside the clock, it only increments numbers."""

    name = "chatlearn"

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint)
        self.counts = GroupCounts()

    def count(self, operation: str, times: int = 1) -> None:
        self.counts.operations[operation] += times

    def note_replica(self, model: str, replica: int) -> None:
        self.counts.replica_order.setdefault(model, []).append(replica)

    def received(self, task: str, inputs: Sequence[Any]) -> Sequence[Any]:
        self.counts.messages += 1
        return inputs

    def end_group(self, number: int) -> GroupCounts:
        """Return the counts since the last call, with the bytes of the newest messages, outside of the clock."""
        counts = self.counts
        self.counts = GroupCounts()
        for inbox in self.endpoint.inboxes.values():
            if inbox.held:
                _, payloads = inbox.held[-1]
                for edge, payload in zip(inbox.edges, payloads, strict=True):
                    counts.message_bytes[edge.source] = content_bytes(payload)
        return counts


def counts_of(endpoint: Any) -> CountingPart:
    """Return the part of a worker that counts."""
    return next(part for part in endpoint.parts if isinstance(part, CountingPart))


def content_bytes(value: Any) -> int:
    """Return the bytes of what a message contains, without headers: a view counts without the rest of its storage.

    The values of dicts and lists are added up, without keys. Raise TypeError for other values, such as None.
    """
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, float):
        return PICKLED_FLOAT_BYTES
    if isinstance(value, int):
        return NUMBER_BYTES
    values = value.values() if isinstance(value, Mapping) else value
    return sum(map(content_bytes, values))


def collect_counts(
    plan: Any, groups: Sequence[Group], driver_seconds: Any
) -> tuple[Measured, str | None]:
    """Return the counts, and why the run has failed: two full episodes with different counts. None if it is ok.

    A full episode has as many messages as the plan's groups of iterations; a shorter one at the end is not compared.
    Nor are the first ones if there is a relay buffer, because they have fewer samples to train on. If no episode is
    left, all operations are 0.
    """
    timed = [by_worker for by_worker, is_timed in groups if is_timed]
    full = [
        by_worker for by_worker in timed if by_worker[DRIVER].messages == plan.options.group_size
    ]
    settled = full[max(0, chatlearn_flags(plan.options).relay_episodes - 1) :]
    episodes = [add_operations(by_worker) for by_worker in settled]
    measured = Measured(
        operations=episodes[-1] if episodes else dict.fromkeys(OPERATIONS, 0),
        message_bytes=find_message_bytes(groups),
        replica_order=find_replica_order(timed),
        received_messages=add_messages(timed),
    )
    return measured, describe_first_difference(episodes)


def add_operations(by_worker: Mapping[str, GroupCounts]) -> dict[str, int]:
    """Return the operations of all workers in one group."""
    total = Counter(dict.fromkeys(OPERATIONS, 0))
    for counts in by_worker.values():
        total.update(counts.operations)
    return dict(total)


def describe_first_difference(episodes: Sequence[Mapping[str, int]]) -> str | None:
    """Return a sentence about the first operation whose count differs between episodes; None if all are equal."""
    for episode in episodes:
        for name in OPERATIONS:
            first = episodes[0][name]
            if episode[name] != first:
                return f"episodes of equal length differ in {name}: {first} and {episode[name]}"
    return None


def find_message_bytes(groups: Sequence[Group]) -> dict[str, int]:
    """Return the bytes of one message of each model, and of the input, from the last group that has some."""
    sizes: dict[str, int] = {}
    for by_worker, _ in groups:
        for counts in by_worker.values():
            sizes |= counts.message_bytes
    sizes.pop(DATASET, None)  # an acknowledgement
    return {INPUT if sender == DRIVER else sender: size for sender, size in sizes.items()}


def find_replica_order(timed: Sequence[Mapping[str, GroupCounts]]) -> dict[str, list[list[int]]]:
    """Return the replicas that got the messages of the first timed episodes, by model."""
    orders: dict[str, list[list[int]]] = {}
    for by_worker in timed[:ORDERED_EPISODES]:
        for model, order in by_worker[DRIVER].replica_order.items():
            orders.setdefault(model, []).append(order)
    return orders


def add_messages(timed: Sequence[Mapping[str, GroupCounts]]) -> dict[str, int]:
    """Return the messages that each process received in all timed groups."""
    total: Counter[str] = Counter()
    for by_worker in timed:
        total.update({name: counts.messages for name, counts in by_worker.items()})
    return dict(total)
