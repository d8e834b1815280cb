# SPDX-License-Identifier: Apache-2.0
"""Give a flow more rollouts and trainers: copies of the actors of these names, which share the messages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dataflow.errors import UsageError
from dataflow.flows.flow import DRIVER, Flow, Task

ROLLOUT = "rollout"
TRAINER = "trainer"


class Copies:
    """How many copies of its actors a flow gets."""

    def __init__(self, flow: Flow, copies: Mapping[str, int]) -> None:
        self.flow = flow
        self.copies = copies

    def count(self, task: str) -> int:
        """Return how many copies a task has. There is one driver."""
        if task == DRIVER:
            return 1
        actor = self.flow.actor(task)
        return self.copies.get(actor, 1)

    def names(self, task: str) -> list[str]:
        """Return the names of all copies of a task."""
        count = self.count(task)
        return names_of_copies(task, count)

    def copy(self, task: Task) -> list[Task]:
        """Return all copies of a task. Each reads its share of the messages of the copies of its senders."""
        names = self.names(task.name)
        total = len(names)
        actors = names_of_copies(task.actor, total)
        tasks = []
        for number, name in enumerate(names):
            reads: list[str] = []
            for source in task.reads:
                sources = self.names(source)
                reads += share_of(sources, number, total)
            copied = replace(task, name=name, actor=actors[number], reads=tuple(reads))
            tasks.append(copied)
        return tasks


def scale_flow(flow: Flow, copies: Mapping[str, int]) -> Flow:
    """Return the flow with so many copies of the actors of these names.

    Each copy sends the whole message of the original. Copies of a reader share the messages of the copies of a sender:
    each message of many senders goes to one reader, and each of many readers gets the message of one sender. Raise
    UsageError if the flow has no actor of a name.
    """
    for name in copies:
        if name not in flow.actors:
            known = ", ".join(flow.actors[:8])
            raise UsageError(f"--{name}s: the flow has no actor {name} (it has {known})")
    all_copies = Copies(flow, copies)
    tasks: list[Task] = []
    for task in flow.tasks:
        tasks += all_copies.copy(task)
    returns: list[str] = []
    for name in flow.returns:
        returns += all_copies.names(name)
    return replace(flow, tasks=tuple(tasks), returns=tuple(returns))


def names_of_copies(name: str, count: int) -> list[str]:
    if count == 1:
        return [name]
    numbers = range(1, count + 1)
    return [f"{name}-{number}" for number in numbers]


def share_of(sources: Sequence[str], number: int, readers: int) -> list[str]:
    """Return the sources that a reader of this number reads, from 0, if so many readers share them."""
    if len(sources) < readers:
        position = number % len(sources)
        return [sources[position]]
    return [*sources[number::readers]]
