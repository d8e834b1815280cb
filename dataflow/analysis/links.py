# SPDX-License-Identifier: Apache-2.0
"""Compute the time of the messages between nodes by plain TCP, the links alone."""

from collections import defaultdict
from functools import cache

import numpy as np

from dataflow.analysis.result import Result, median_of
from dataflow.flows.flow import DRIVER, PROXY, Edge, Flow, with_proxy_actor
from dataflow.plan.options import FORMS, options_of
from dataflow.plan.plan import Crossing, find_crossings
from dataflow.records.schema import Run


@cache
def link_seconds(result: Result) -> float | None:
    """Return the time of the messages between nodes by plain TCP; None if all actors are on one node.

    It is the median of the runs, in seconds per iteration.
    """
    seconds = []
    for run in result.shown_runs:
        # Failed runs do not name the nodes.
        is_known = run.links and run.nodes
        if is_known:
            seconds.append(_link_seconds(result, run))
    return median_of([seconds])


def crossings_of(result: Result, run: Run) -> tuple[Flow, list[Crossing]]:
    """Return the messages that were sent in a run, and those of them that crossed between nodes.

    They differ from the flow of the user if the form of the message changes them, or if a proxy actor stands for the
    driver.
    """
    flow = result.flow
    if change := FORMS.get(result.workload.message):
        flow = change(flow)
    if PROXY in run.nodes:
        flow = with_proxy_actor(flow)
    else:
        options = options_of(result.workload.flow, result.configuration.flags)
        flow = options.add_tasks(flow).flow
    return flow, find_crossings(flow, run.nodes, result.transport.once_per_node)


def seconds_per_byte(run: Run) -> dict[tuple[int, int], float]:
    """Return the seconds per byte between two nodes, by the numbers of the sending and the reading one.

    A link is measured with several numbers of connections; the fastest one counts.
    """
    fastest: dict[tuple[int, int], float] = {}
    for link in run.links:
        pair = (link.source, link.reader)
        median_seconds = float(np.median(link.seconds))
        per_byte = median_seconds / link.bytes
        fastest[pair] = min(per_byte, fastest.get(pair, per_byte))
    return fastest


class NodeTimes:
    """When nodes send and readers have their inputs, if a node sends one message at a time.

    All times are in seconds after the begin of an iteration.
    """

    def __init__(self) -> None:
        self.busy = defaultdict[int, float](float)  # node -> seconds for which it sends
        self.ready = defaultdict[str, float](float)  # reader -> when it has all its inputs
        self.sent = defaultdict[int, float](float)  # node -> when it has sent its last message

    def wait_for(self, name: str, reader: str) -> None:
        """Let a reader begin after another one has its inputs."""
        self.ready[reader] = max(self.ready[reader], self.ready[name])

    def send(self, edges: list[Edge], node: int, seconds: float) -> None:
        """Add a message that serves these edges, from a node that has it when its source is ready."""
        source = edges[0].source
        begin = max(self.ready[source], self.sent[node])
        end = begin + seconds
        self.sent[node] = end
        self.busy[node] += seconds
        for edge in edges:
            self.ready[edge.reader] = max(self.ready[edge.reader], end)


def _link_seconds(result: Result, run: Run) -> float:
    """Return the time per iteration of the messages of a run between nodes.

    If iterations overlap, it is that of the node that sends longest. Otherwise it ends when the driver has all results:
    a task sends when it has all its inputs, and a node sends one message at a time.
    """
    flow, crossings = crossings_of(result, run)
    byte_seconds = seconds_per_byte(run)
    times = NodeTimes()
    reads_of = {task.name: task.reads for task in flow.tasks}
    for source in (DRIVER, *reads_of):
        for name in reads_of.get(source, ()):
            if name != DRIVER:
                times.wait_for(name, source)
        for edges, sender, node in crossings:
            if edges[0].source == source:
                per_byte = byte_seconds.get((sender, node), 0.0)
                times.send(edges, sender, per_byte * edges[0].bytes)
    if result.in_flight > 1:
        return max(times.busy.values(), default=0.0)
    return max(times.ready[source] for source in (DRIVER, *flow.returns))
