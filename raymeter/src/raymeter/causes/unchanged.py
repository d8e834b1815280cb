# SPDX-License-Identifier: Apache-2.0
"""Find results that an actor returns again although none of its other methods has run, which may have changed them.

A server of weights changes them in one method, and returns them from another one to each of its workers.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from raymeter.profile.program import Message, Phase, Program


def identity_of(message: Message) -> tuple[str, int, int]:
    """Return what is equal for the same content of the same owner.

    A task may compute equal results again, so a result is the same only if its array is the same object. Of arguments
    and of ray.put, equal content is enough.
    """
    sent = message.sent
    token = sent.token if message.how == "result" else 0
    return sent.process, sent.content, token


def find_unchanged(program: Program, messages: list[Message]) -> list[Message]:
    """Return the results that an actor has returned again before any other of its methods ran.

    The methods that change its state run in between otherwise. Return [] if a comparison of all bytes has shown a
    difference between two such results, or if there was no comparison. A message was compared with the last one of
    its content of which all bytes were summed, so a comparison counts only if no other method ran since that one.
    """
    by_process: dict[str, list[Message]] = defaultdict(list)
    for message in messages:
        sent = message.sent
        if message.how == "result" and sent.token:
            by_process[sent.process].append(message)
    changes = times_of_other_methods(program, messages)
    repeats = []
    verified: list[bool] = []
    for process, results in by_process.items():
        verified += comparisons(process, results, changes)
        for earlier, later in pairwise(results):
            if identity_of(earlier) != identity_of(later):
                continue
            if not changes.any_between(process, earlier, later):
                repeats.append(later)
    if False in verified or True not in verified:
        return []
    return repeats


def comparisons(process: str, results: list[Message], changes: "Changes") -> list[bool]:
    """Return, for each result whose bytes were compared with those of an earlier one, whether they are the same.

    Comparisons are left out if another method ran since the earlier one, which may have changed it.
    """
    summed: dict[int, Message] = {}  # by content: the last message of which all bytes were summed
    found = []
    for later in results:
        sent = later.sent
        earlier = summed.get(sent.content)
        is_comparable = earlier is not None and not changes.any_between(process, earlier, later)
        if sent.is_same is not None and is_comparable:
            found.append(sent.is_same)
        if sent.whole or sent.is_same is not None:
            summed[sent.content] = later
    return found


@dataclass
class Changes:
    """When other methods of the actors ran which return these messages: their starts and ends, by process."""

    times: dict[str, list[Phase]]

    def any_between(self, process: str, earlier: Message, later: Message) -> bool:
        """Return whether another method ran, even in part, from the start of a message to the end of a later one."""
        begin = earlier.sent.start
        end = later.sent.end
        phases = self.times.get(process, [])
        return any(start <= end and stop >= begin for start, stop in phases)


def times_of_other_methods(program: Program, messages: list[Message]) -> Changes:
    """Return when methods ran that return none of these messages."""
    returning = {message.sent.by for message in messages}
    known = [task for task in program.tasks.values() if task.task in returning]
    own = {task.name for task in known}
    times: dict[str, list[Phase]] = defaultdict(list)
    for task in program.tasks.values():
        if task.name not in own and task.execute is not None:
            process = program.process_of(task)
            times[process].append(task.execute)
    return Changes(times)
