# SPDX-License-Identifier: Apache-2.0
"""Forecast how long an iteration takes on a cluster, which resource is full first, and from how many rollouts on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from dataflow.cluster.costs import WayCost
from dataflow.cluster.hardware import Cluster, place
from dataflow.cluster.scaling import ROLLOUT, TRAINER, scale_flow
from dataflow.cluster.simulation import ROUNDING, Kind, Outcome, Resource
from dataflow.cluster.ways import simulate_flow
from dataflow.flows.flow import DRIVER, Flow

FULL = 0.9  # of the time of an iteration, from which on a resource that is in use is called full
LARGER = 2  # times as many rollouts as asked for: the largest cluster that is simulated
MAX_ROLLOUTS = 256  # of a larger one
DRIVERS_CORE = "the driver's core"
NAMES = {
    Kind.CORES: "cores",
    Kind.MEMORY: "memory bandwidth",
    Kind.SENDS: "link (out)",
    Kind.RECEIVES: "link (in)",
}


@dataclass(frozen=True)
class Case:
    """A flow with one rollout and one trainer, and the cluster that it is to run on."""

    flow: Flow
    cluster: Cluster
    placement: str
    rollouts: int | None = None  # None: the flow stays as it is
    trainers: int | None = None

    def resize(self, rollouts: int | None) -> "Case":
        """Return the case with another number of rollouts, and trainers and nodes in the same relation.

        One trainer stays one, because it sends the same message to all.
        """
        if self.rollouts is None or rollouts is None or rollouts == self.rollouts:
            return self
        share = rollouts / self.rollouts
        nodes = max(1, ceil(self.cluster.nodes * share))
        trainers = self.trainers
        if trainers and trainers > 1:
            trainers = max(1, round(trainers * share))
        cluster = replace(self.cluster, nodes=nodes)
        return replace(self, cluster=cluster, rollouts=rollouts, trainers=trainers)

    def scaled_flow(self) -> Flow:
        copies = {ROLLOUT: self.rollouts, TRAINER: self.trainers}
        return scale_flow(self.flow, {name: count for name, count in copies.items() if count})


@dataclass(frozen=True)
class Point:
    """The simulated iteration of one way on a cluster of one size."""

    case: Case
    seconds: float
    limit: str  # the resource that is in use longest
    share: float  # of the time of the iteration for which it is in use

    @property
    def is_full(self) -> bool:
        return self.share >= FULL - ROUNDING


@dataclass(frozen=True)
class Forecast:
    """One way on the cluster that was asked for, and from which size on a resource is full."""

    way: WayCost
    asked: Point
    full_from: Point | None  # None: no resource is full, on larger clusters neither


class Sizes:
    """A case with other numbers of rollouts. Flows are made once per number, because all ways need them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.cases: dict[int | None, tuple[Case, Flow]] = {}
        self.points: dict[tuple[str, int | None], Point] = {}

    def simulate(self, way: WayCost, rollouts: int | None) -> Point:
        """Return the iteration of one way with so many rollouts."""
        if rollouts not in self.cases:
            resized = self.case.resize(rollouts)
            self.cases[rollouts] = (resized, resized.scaled_flow())
        key = way.configuration, rollouts
        if key not in self.points:
            case, flow = self.cases[rollouts]
            self.points[key] = simulate_case(case, flow, way)
        return self.points[key]


def forecast(case: Case, ways: Sequence[WayCost]) -> list[Forecast]:
    """Return the forecast of each way."""
    sizes = Sizes(case)
    forecasts = []
    for way in ways:
        asked = sizes.simulate(way, case.rollouts)
        full = find_full(asked, partial(sizes.simulate, way))
        forecasts.append(Forecast(way, asked, full))
    return forecasts


def find_full(asked: Point, simulate_size: Callable[[int], Point]) -> Point | None:
    """Return the smallest size from which on the same resource is full; None if none is.

    If no resource is full on the cluster that was asked for, larger ones are tried.
    """
    point = asked
    rollouts = asked.case.rollouts
    if rollouts is None:
        return asked if asked.is_full else None
    largest = min(LARGER * rollouts, max(rollouts, MAX_ROLLOUTS))
    while not point.is_full and 2 * rollouts <= largest:
        rollouts *= 2
        point = simulate_size(rollouts)
    if not point.is_full:
        return None
    too_few = 0
    while too_few + 1 < rollouts:
        # Halves first: small clusters are simulated fast.
        middle = rollouts // 2 if too_few == 0 else (too_few + rollouts) // 2
        smaller = simulate_size(middle)
        if smaller.is_full and smaller.limit == point.limit:
            point = smaller
            rollouts = middle
        else:
            too_few = middle
    return point


def simulate_case(case: Case, flow: Flow, way: WayCost) -> Point:
    places = place(flow, case.cluster.nodes, case.placement)
    costs = way.costs_on(case.cluster.machine)
    outcome = simulate_flow(flow, places, case.cluster, way.path, costs)
    limit = longest_in_use(outcome)
    share = outcome.share(limit) if limit else 0.0
    return Point(case, outcome.seconds, name_resource(limit), share)


def longest_in_use(outcome: Outcome) -> Resource | None:
    busy = outcome.busy
    key: Callable[[Resource], float] = busy.__getitem__
    return max(busy, key=key, default=None)


def name_resource(resource: Resource | None) -> str:
    """Return the name of a resource, equal for equal parts: "core of a rollout"."""
    if resource is None:
        return "nothing"
    if resource.kind == Kind.SWITCH:
        return "the switch"
    if resource.kind == Kind.CALL:
        return "a call"
    if resource.kind == Kind.CORE:
        owner = str(resource.owner)
        if owner == DRIVER:
            return DRIVERS_CORE
        role = owner.rstrip("0123456789").rstrip("-")
        return f"the core of a {role or owner}"
    # The driver is on node 0.
    owner = "the driver's node" if resource.owner == 0 else "a node"
    return f"{NAMES[resource.kind]} of {owner}"
