# SPDX-License-Identifier: Apache-2.0
"""Find the process in which a task ran. Ray knows its node and its process id, which is another one's on other nodes.

A recorded process knows its host, and not its node. A message, or a task whose events were recorded, tells both.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from raymeter.profile.events import Call, Process, Run, Task
from raymeter.profile.reader import Recording


class Workers:
    """The recorded processes, by what Ray knows of the tasks in them."""

    def __init__(self, recording: Recording) -> None:
        self.by_pid: dict[int, list[Process]] = defaultdict(list)
        for process in recording.processes:
            same_pid = self.by_pid[process.pid]
            same_pid.append(process)
        self.hosts = find_hosts(recording)
        self.placed = find_placed(recording)

    def process_of(self, task: Task) -> str:
        """Return the name of the process in which a task ran; "" if it was not recorded."""
        return self.process_at(task.node, task.pid)

    def process_at(self, node: str, pid: int) -> str:
        """Return the name of the process with an id on a node; "" if it was not recorded.

        On a node whose host is not known, it is the only process with this id, if there is only one, and if that is not
        known to be on another node.
        """
        found = self.may_be_at(node, pid)
        is_sure = node in self.hosts or len(self.by_pid[pid]) == 1
        return found[0].process if is_sure and len(found) == 1 else ""

    def may_be_at(self, node: str, pid: int) -> list[Process]:
        """Return the recorded processes that may be the one with an id on a node: none if it was surely not recorded.

        There are several if processes on two nodes have this id, and nothing tells on which nodes they are.
        """
        found = self.by_pid[pid]
        host = self.hosts.get(node)
        if host is not None:
            found = [process for process in found if process.host == host]
        elif node:
            found = [process for process in found if process.process not in self.placed]
        return found


def find_placed(recording: Recording) -> set[str]:
    """Return the names of the processes of which a node is known."""
    placed = set()
    for node, process in find_nodes(recording):
        if node:
            placed.add(process)
    return placed


def find_hosts(recording: Recording) -> dict[str, str]:
    """Return the host of each node that is known."""
    hosts = {process.process: process.host for process in recording.processes}
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for node, process in find_nodes(recording):
        host = hosts.get(process)
        if node and host is not None:
            counts = votes[node]
            counts[host] += 1
    # An event may belong to an earlier attempt of a task, on another node, so the most frequent host is right.
    found = {}
    for node, counts in votes.items():
        ((most_frequent, _),) = counts.most_common(1)
        found[node] = most_frequent
    return found


def find_nodes(recording: Recording) -> Iterator[tuple[str, str]]:
    """Yield nodes with the name of a process on them."""
    for sent in recording.sent:
        yield sent.node, sent.process
    for received in recording.received:
        yield received.node, received.process
    nodes = {task.task: task.node for task in recording.tasks}
    events: list[Call | Run] = [*recording.calls, *recording.runs]
    for event in events:
        node = nodes.get(event.by, "")
        yield node, event.process
