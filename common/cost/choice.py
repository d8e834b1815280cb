"""Which transport for a flow: what may be taken, what it took or is expected to take, and what is not known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.analysis.results import Result
from common.cost.cost_model import Estimate
from common.cost.costs import Costs, transport_of
from common.cost.size import size_of
from common.flow.flow import Flow, packed
from common.record.rows import LADDER, ROWS, Row, readers_hold_views

WITHIN = 1.10  # of the best: a choice that is no worse than that is right
ENOUGH = 0.9  # of the choices


@dataclass(frozen=True)
class Wanted:
    """What is asked.

    suffix: what rows that send such messages are called: " --message packed", say.
    own_bytes: readers end with bytes of their own; else they may hold views of another's memory.
    """

    flow: Flow
    suffix: str = ""
    own_bytes: bool = True
    nodes: int = 1
    gpus: int = 0

    @property
    def packed(self) -> bool:
        return "--message packed" in self.suffix

    def name(self, row: Row) -> str:
        """How records call this row in such a place; two raylets on one machine (--placement spread) are one node."""
        return f"{row.name}{self.suffix}{' --address' * (self.nodes > 1)}{' on cuda' * (self.gpus > 0)}"


@dataclass(frozen=True)
class Choice:
    """A row that may be taken.

    measured: of just this flow; the newest. predicted: by the fit of the row's sweeps.
    beyond: in what the flow lies outside of what was swept.
    """

    row: Row
    measured: Result | None
    predicted: Estimate | None
    beyond: list[str]

    @property
    def seconds(self) -> float | None:
        """A trip, as measured, or else as expected; None: neither is known."""
        if self.measured:
            return self.measured.summary.median
        return self.predicted.value if self.predicted else None


def ruled_out(row: Row, wanted: Wanted) -> str | None:
    """Why a row cannot be taken; None: it can."""
    needs = LADDER[f"{row.runtime} {row.transport}"].needs
    if needs.one_process or "episode" in row.flags:
        return "no transport of its own"
    if wanted.own_bytes and readers_hold_views(row, row.flags):
        return "readers hold views of another's memory (--reads some would allow it)"
    if wanted.nodes > 1 and (needs.one_machine or needs.segments):
        return "one machine's memory"
    if wanted.nodes > 1 and row.runtime == "torch":
        return "its processes start on one machine"
    if wanted.gpus and needs.host_only:
        return "its payloads lie in the host's memory"
    if needs.gpus > wanted.gpus or (needs.gpu_each and wanted.gpus < len(wanted.flow.actors)):
        return "too few GPUs"
    return None


def is_of(result: Result, flow: Flow) -> bool:
    """Whether it was measured of just this flow; of one in a file, which may have changed, by who read how much."""
    if ".py:" not in result.record.row.flow:
        return result.flow.edges == flow.edges
    wanted = [(edge.source, edge.reader, edge.bytes) for edge in flow.edges]
    return [(edge.source, edge.reader, edge.bytes) for edge in result.flow.edges] == wanted


def choices(wanted: Wanted, results: Sequence[Result], costs: Mapping[str, Costs]) -> list[Choice]:
    """Every row that may be taken, the fastest first, those of which nothing is known last."""
    by_name: dict[str, list[Result]] = {}
    for result in results:
        if result.status == "ok" and not (result.traced or result.alternated) and is_of(result, wanted.flow):
            by_name.setdefault(transport_of(result), []).append(result)
    size = size_of(packed(wanted.flow) if wanted.packed else wanted.flow)
    found = []
    for row in ROWS:
        if ruled_out(row, wanted):
            continue
        name = wanted.name(row)
        exact, own = by_name.get(name, []), costs[name].fit if name in costs else None
        found.append(Choice(
            row, max(exact, key=lambda result: result.runs[0].started_at, default=None),
            own.predict(size) if own else None, own.beyond(size) if own else [],
        ))  # fmt: skip
    return sorted(found, key=lambda choice: choice.seconds or float("inf"))


def transport_like(one: Row, other: Row) -> bool:
    return (one.runtime, one.transport) == (other.runtime, other.transport)


def reason(slower: Row, faster: Row) -> str | None:
    """What the faster one does that the slower one does not, where the ladder goes from the one down to the other."""
    if slower.flags == {**faster.flags, "copy_out": True} and transport_like(slower, faster):
        return "readers stay with their views: nothing is copied out of them"
    steps, row = [], faster
    while row.above:
        steps.append(row.because)
        if row.above == slower.name:
            return "; ".join(reversed(steps))
        row = LADDER[row.above]
    return None


@dataclass(frozen=True)
class Checked:
    """One flow that was measured and not used for the fits: which transport was foretold to be the best, which was."""

    flow: Flow
    own_bytes: bool
    foretold: str
    best: str
    times: float  # what the foretold one took, in terms of the best one's time

    @property
    def right(self) -> bool:
        return self.times <= WITHIN


def check(results: Sequence[Result], costs: Mapping[str, Costs]) -> Iterator[Checked]:
    """Each flow of these results that two transports with a fit carried, for either kind of reader."""
    flows: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        if result.status == "ok" and transport_of(result) in costs:
            flows.setdefault((result.flow.edges, result.record.row.message == "packed"), []).append(result)
    for own in flows.values():
        for own_bytes in (True, False):
            wanted = Wanted(own[0].flow, " --message packed" * (own[0].record.row.message == "packed"), own_bytes)
            measured = {transport_of(result): result.summary.median for result in own}
            # Nothing that was measured of the flow itself: the fits alone.
            ranked = [choice for choice in choices(wanted, [], costs) if wanted.name(choice.row) in measured]
            if len(ranked) < 2:
                continue
            allowed = {wanted.name(choice.row) for choice in ranked}
            best = min(allowed, key=measured.__getitem__)
            foretold = wanted.name(ranked[0].row)
            yield Checked(own[0].flow, own_bytes, foretold, best, measured[foretold] / measured[best])
