"""Compute the time of the messages between nodes over the network alone, and what the clocks of nodes can tell."""

from collections import defaultdict
from functools import cache

import numpy as np

from dataflow.analysis.result import Result, median_of
from dataflow.flows.flow import DRIVER, PROXY, with_proxy_actor
from dataflow.plan.options import FORMS, options_of
from dataflow.plan.plan import Crossings
from dataflow.records.schema import Run

MAX_CLOCK_ERROR = 0.05  # of a time that begins on one node and ends on another


@cache
def link_seconds(result: Result) -> float | None:
    """Return the time of the messages between nodes by plain TCP; None if all actors are on one node."""
    complete = [run for run in result.shown_runs if run.links and run.nodes]  # failed runs do not name the nodes
    return median_of([_link_seconds(run, crossings_of(result, run), result.in_flight > 1)] for run in complete)


def times_link(result: Result) -> float | None:
    """Return time / time of the link alone."""
    return result.multiple_of(link_seconds(result))


def crossings_of(result: Result, run: Run) -> Crossings:
    """Return the messages that crossed between the nodes of a run."""
    change = FORMS.get(result.workload.message)
    flow = change(result.flow) if change else result.flow
    options = options_of(result.workload.flow, result.configuration.flags)
    flow = with_proxy_actor(flow) if PROXY in run.nodes else options.add_tasks(flow).flow
    return Crossings(flow, run.nodes, result.transport.once_per_node)


def clock_error_seconds(result: Result) -> float:
    """Return the largest error of a time between two nodes. The driver's node has the driver's clock."""
    errors = [[cost.clock_error_seconds for node, cost in run.node_costs.items() if node != "0"]
              for run in result.shown_runs]  # fmt: skip
    return max((sum(sorted(of_run)[-2:]) for of_run in errors), default=0.0)


def is_within_clock_error(result: Result, seconds: float) -> bool:
    """Return whether a time between processes is too short for the clocks of the nodes."""
    return clock_error_seconds(result) > MAX_CLOCK_ERROR * abs(seconds)


def _link_seconds(run: Run, crossings: Crossings, overlap: bool) -> float:
    """Return the time per iteration of the messages between nodes by plain TCP.

    The faster number of connections of each link counts. If iterations overlap, it is the time of the node that sends
    longest. Otherwise it is the time until the driver has all results: a task sends when it has all its inputs, and a
    node sends one message at a time.
    """
    flow = crossings.flow
    byte_seconds: dict[tuple[int, int], float] = {}
    for link in run.links:
        pair, seconds = (link.source, link.reader), float(np.median(link.seconds)) / link.bytes
        byte_seconds[pair] = min(seconds, byte_seconds.get(pair, seconds))
    reads = {DRIVER: flow.returns} | {task.name: task.reads for task in flow.tasks}
    busy = defaultdict[int, float](float)  # node -> seconds for which it sends
    ready = defaultdict[str, float](float)  # reader -> when it has all its inputs
    sent = defaultdict[int, float](float)  # node -> when it has sent its last message so far
    for source in reads:
        arrivals = [(reader, ready[source]) for reader, sources in reads.items() if source in sources]
        for edges, sender, node in crossings.messages:
            if edges[0].source == source:
                seconds = byte_seconds.get((sender, node), 0.0) * edges[0].bytes
                sent[sender] = max(ready[source], sent[sender]) + seconds
                busy[sender] += seconds
                arrivals += [(edge.reader, sent[sender]) for edge in edges]
        for reader, seconds in arrivals:
            ready[reader] = max(ready[reader], seconds)
    return max(busy.values(), default=0.0) if overlap else ready[DRIVER]
