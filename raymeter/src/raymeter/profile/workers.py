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

    def process_of(self, task: Task) -> str:
        """Return the name of the process in which a task ran; "" if it was not recorded."""
        return self.process_at(task.node, task.pid)

    def process_at(self, node: str, pid: int) -> str:
        """Return the name of the process with an id on a node; "" if it was not recorded.

        On an unknown node, it is the only process with this id, if there is only one.
        """
        found = self.by_pid.get(pid, [])
        host = self.hosts.get(node)
        if host is not None:
            found = [process for process in found if process.host == host]
        if len(found) != 1:
            return ""
        return found[0].process


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
