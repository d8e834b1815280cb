"""Find the process in which a task ran. Ray knows its node and its process id, which is another one's on other nodes.

A recorded process knows its host, and not its node. A message, or a task whose events were recorded, tells both.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from raymeter.profile.events import Task
from raymeter.profile.reader import Recording


class Workers:
    """The names of the recorded processes, by what Ray knows of the tasks in them."""

    def __init__(self, recording: Recording) -> None:
        self.names: dict[tuple[str, int], str] = {}  # by host and process id
        self.names_of_pid: dict[int, list[str]] = defaultdict(list)
        hosts = {}
        for process in recording.processes:
            self.names[process.host, process.pid] = process.process
            self.names_of_pid[process.pid].append(process.process)
            hosts[process.process] = process.host
        # An event may belong to an earlier attempt of a task, on another node, so the most frequent host is right.
        votes: dict[str, Counter[str]] = defaultdict(Counter)
        for node, name in find_nodes(recording):
            if node and name in hosts:
                host = hosts[name]
                votes[node][host] += 1
        self.hosts: dict[str, str] = {}  # by node
        for node, counts in votes.items():
            ((host, _),) = counts.most_common(1)
            self.hosts[node] = host

    def process_of(self, task: Task) -> str:
        """Return the name of the process in which a task ran; "" if it was not recorded.

        A task on an unknown node belongs to the only process with its id, if there is only one.
        """
        host = self.hosts.get(task.node)
        if host is not None:
            return self.names.get((host, task.pid), "")
        names = self.names_of_pid.get(task.pid, [])
        return names[0] if len(names) == 1 else ""


def find_nodes(recording: Recording) -> Iterator[tuple[str, str]]:
    """Yield nodes with the name of a process on them."""
    for sent in recording.sent:
        yield sent.node, sent.process
    for received in recording.received:
        yield received.node, received.process
    node_of = {task.task: task.node for task in recording.tasks}
    for event in [*recording.calls, *recording.runs, *recording.fetches]:
        yield node_of.get(event.by, ""), event.process
