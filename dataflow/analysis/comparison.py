"""Compare results: pairs of configurations, two measurements, and messages between nodes with the links alone."""

from collections import defaultdict, namedtuple
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from itertools import product
from typing import Any

import msgspec
import numpy as np

from dataflow.analysis.result import Result, median_of
from dataflow.analysis.statistics import Ratio, ratio
from dataflow.catalogue.catalogue import BASELINE, REFERENCE
from dataflow.errors import RecordError
from dataflow.flows.flow import DRIVER, PROXY, Flow, with_proxy_actor
from dataflow.plan.options import FLAGS, FORMS, SENDER_SIZES, options_of
from dataflow.plan.plan import Crossing, Plan, find_crossings
from dataflow.records.machine import HARDWARE_KEYS, MACHINE_KEYS
from dataflow.records.schema import Configuration, Run, Workload

# Equal for results whose times are compared. The flags are without --inject, so that its effect is visible.
Identity = namedtuple("Identity", "workload configuration traced paired")
TRANSPORT_FLAGS = {field.name for field in FLAGS if field.metadata["group"] == "transport"}


def find_transports(results: Sequence[Result]) -> list[Result]:
    """Return the ok results that are verified after each iteration, the demo's baseline first, not the reference."""
    transports = [
        r
        for r in results
        if r.status == "ok" and r.check_every == 1 and r.transport.label != REFERENCE
    ]
    return sorted(transports, key=lambda result: result.name != BASELINE)


def is_asked_for(result: Result, plan: Plan) -> bool:
    """Return whether a result is of the planned workload, with any transport and its flags."""
    work, asked = result.workload, plan.workload
    is_equal = _flags_and_sizes(result.configuration, work) == _flags_and_sizes(
        plan.configuration, asked
    )
    if not is_equal or result.status != "ok" or result.traced or result.paired:
        return False
    if plan.requested_flow.has_parameters:
        return True
    any_form = (
        asked.message == "fields" and not asked.sizes.get("as_sent") and work.message != "flat"
    )
    has_messages = work.edges == asked.edges and (any_form or work.message == asked.message)
    return has_messages and not result.transport.requirements.single_process


def _flags_and_sizes(configuration: Configuration, workload: Workload) -> tuple[Any, ...]:
    """Return what must be equal in the records of one ranking: all but the transport, its flags, and the messages."""
    flags = {
        name: value for name, value in configuration.flags.items() if name not in TRANSPORT_FLAGS
    }
    sizes = {name: value for name, value in workload.sizes.items() if name not in SENDER_SIZES}
    return configuration.device, configuration.layout, flags, workload.flow, sizes


class Pair:
    """Two results whose times per iteration are compared."""

    def __init__(self, old: Result, new: Result) -> None:
        self.old, self.new = self.sides = old, new
        self.label = new.label if new.label == old.label else f"{new.label} / {old.label}"
        self.is_measured = old.status == new.status == "ok"
        old_share, new_share = (
            sum(run.status == "failed" for run in r.runs) / len(r.runs) for r in self.sides
        )
        self.is_worse = old.status == "ok" and (new.status != "ok" or new_share > old_share)
        by_pair = {run.pair: run for run in old.shown_runs if run.pair}
        self.paired_runs = [
            (by_pair[run.pair], run) for run in new.shown_runs if run.pair in by_pair
        ]

    @cached_property
    def ratio(self) -> Ratio:
        """Return new time / old time; of runs that were paired, pair by pair."""
        old = [self.old.seconds_of(run) for run, _ in self.paired_runs]
        new = [self.new.seconds_of(run) for _, run in self.paired_runs]
        return ratio(
            new or self.new.run_seconds, old or self.old.run_seconds, paired=bool(self.paired_runs)
        )


def match_results(
    old: Sequence[Result], new: Sequence[Result]
) -> tuple[list[Pair], list[Result], list[Result]]:
    """Return the pairs, the unmatched old and the unmatched new results; raise RecordError if they do not fit."""
    pairs = [pair for one in old for other in new if (pair := Pair(one, other)).paired_runs]
    matched = [result for pair in pairs for result in pair.sides]
    only_old, only_new = (
        _by_identity([result for result in side if result not in matched]) for side in (old, new)
    )
    for identity in only_old.keys() & only_new.keys():
        pairs.append(Pair(only_old.pop(identity), only_new.pop(identity)))
    for one, other in product(only_old, only_new):
        if one.configuration.name == other.configuration.name:
            difference = next(
                find_differences(*(msgspec.to_builtins(side._asdict()) for side in (one, other)))
            )
            raise RecordError(f"{one.configuration.name}: OLD and NEW are different measurements, {difference}: "
                              "measure both with the same flags")  # fmt: skip
    if not pairs:
        names = ["; ".join(result.label for result in side) or "none" for side in (old, new)]
        raise RecordError(f"no configuration is on both sides: OLD has {names[0]}, NEW {names[1]}")
    return (
        sorted(pairs, key=lambda pair: old.index(pair.old)),
        list(only_old.values()),
        list(only_new.values()),
    )


def _by_identity(results: Sequence[Result]) -> dict[Identity, Result]:
    by_identity: dict[Identity, Result] = {}
    for result in results:
        flags = {
            name: value for name, value in result.configuration.flags.items() if name != "inject"
        }
        configuration = msgspec.structs.replace(result.configuration, flags=flags)
        other = by_identity.setdefault(
            Identity(result.workload, configuration, result.traced, result.paired), result
        )
        if other is not result:
            raise RecordError(f"{other.label} and {result.label} are two results of the same measurement on one side: "
                              "name one of them")  # fmt: skip
    return by_identity


def find_differences(one: Any, other: Any, name: str = "") -> Iterator[str]:
    """Yield a text for each value that differs in two nested dicts: its name and both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from find_differences(one.get(key), other.get(key), f"{name} {key}".strip())
    elif one != other:
        yield f"{name}: {one} → {other}"


def check_one_machine(results: Sequence[Result], several_boots: bool = False) -> None:
    """Raise RecordError for results of different machines or versions, or in one table of two boots or kernels.

    With `several_boots`, each table may be of another machine, which it names.
    """
    first: dict[str, dict[str, Any]] = {}
    for result in results:
        table = f"the records of the table {result.table}"
        whose = table if several_boots else "the records"
        groups: dict[str, Sequence[str]] = {
            f"{whose} are of different machines or versions": HARDWARE_KEYS
        }
        groups |= (
            {} if several_boots else {f"{table} are of different boots or kernels": MACHINE_KEYS}
        )
        for environment, (problem, keys) in product(result.environments, groups.items()):
            machine = {key: environment.get(key) for key in keys}
            for difference in find_differences(first.setdefault(problem, machine), machine):
                raise RecordError(f"{problem}, {difference}: name those of one, or give --mixed")


@cache
def link_seconds(result: Result) -> float | None:
    """Return the time of the messages between nodes by plain TCP; None if all actors are on one node."""
    complete = [
        run for run in result.shown_runs if run.links and run.nodes
    ]  # failed runs do not name the nodes
    return median_of([_link_seconds(result, run)] for run in complete)


def crossings_of(result: Result, run: Run) -> tuple[Flow, list[Crossing]]:
    """Return the messages that were sent in a run, and those of them that crossed between nodes."""
    change = FORMS.get(result.workload.message)
    flow = change(result.flow) if change else result.flow
    options = options_of(result.workload.flow, result.configuration.flags)
    flow = with_proxy_actor(flow) if PROXY in run.nodes else options.add_tasks(flow).flow
    return flow, find_crossings(flow, run.nodes, result.transport.once_per_node)


def _link_seconds(result: Result, run: Run) -> float:
    """Return the time per iteration of the messages of a run between nodes, with the faster number of connections.

    If iterations overlap, it is that of the node that sends longest. Otherwise it ends when the driver has all results:
    a task sends when it has all its inputs, and a node sends one message at a time.
    """
    flow, crossings = crossings_of(result, run)
    byte_seconds: dict[tuple[int, int], float] = {}
    for link in run.links:
        pair, seconds = (link.source, link.reader), float(np.median(link.seconds)) / link.bytes
        byte_seconds[pair] = min(seconds, byte_seconds.get(pair, seconds))
    busy = defaultdict[int, float](float)  # node -> seconds for which it sends
    ready = defaultdict[str, float](float)  # reader -> when it has all its inputs
    sent = defaultdict[int, float](float)  # node -> when it has sent its last message so far
    for source, reads in [(DRIVER, ()), *((task.name, task.reads) for task in flow.tasks)]:
        ready[source] = max(
            [ready[source], *(ready[name] for name in reads if name != DRIVER)]
        )  # which begins at 0
        for edges, sender, node in crossings:
            if edges[0].source == source:
                seconds = byte_seconds.get((sender, node), 0.0) * edges[0].bytes
                sent[sender] = max(ready[source], sent[sender]) + seconds
                busy[sender] += seconds
                for edge in edges:
                    ready[edge.reader] = max(ready[edge.reader], sent[sender])
    if result.in_flight > 1:
        return max(busy.values(), default=0.0)
    return max(ready[source] for source in (DRIVER, *flow.returns))
