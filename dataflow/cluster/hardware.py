# SPDX-License-Identifier: Apache-2.0
"""Describe a cluster: what its machines take to copy, the links of its nodes, and where the processes of a flow run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from dataflow.cluster.simulation import Kind, Resource
from dataflow.errors import UsageError
from dataflow.flows.flow import DRIVER, Flow

BITS = 8
RATES = {"gbit": 1e9 / BITS, "tbit": 1e12 / BITS, "gbit/s": 1e9 / BITS, "tbit/s": 1e12 / BITS}
BYTE_RATES = {"mb/s": 1e6, "gb/s": 1e9, "tb/s": 1e12}
MAX_RATE = 1e15  # bytes per second


@dataclass(frozen=True)
class NodeMachine:
    """What copies and page faults take on the machine of a node."""

    # Bytes per second that two threads copy together. The costs of configurations were fitted with it, on machines of
    # two cores. How far one process gets on a machine with more cores was not measured.
    pair_rate: float
    memory_rate: float  # bytes per second that all cores copy together
    fault_seconds: float
    cores: float  # infinite: each process has one


# Everything is as fast as a process can use it, and there are no page faults.
UNLIMITED = NodeMachine(
    pair_rate=inf,
    memory_rate=inf,
    fault_seconds=0.0,
    cores=inf,
)


@dataclass(frozen=True)
class Cluster:
    """Nodes of one kind, and the network between them."""

    machine: NodeMachine
    nodes: int
    link_rate: float  # bytes per second of a node, in each direction
    # Bytes per second between all nodes together; None: it is never full.
    switch_rate: float | None = None
    # The nodes are parts of one machine, whose cores and memory they share.
    is_one_machine: bool = False

    def owner(self, node: int) -> int:
        """Return the number of the machine that has a node."""
        return 0 if self.is_one_machine else node

    def capacities(self, processes: Sequence[str], tasks: Sequence[str]) -> dict[Resource, float]:
        """Return the amounts per second of each resource."""
        capacities = {Resource(Kind.CORE, process): 1.0 for process in processes}
        capacities |= {Resource(Kind.CALL, task): 1.0 for task in tasks}
        for node in range(self.nodes):
            capacities[Resource(Kind.CORES, self.owner(node))] = self.machine.cores
            capacities[Resource(Kind.MEMORY, self.owner(node))] = self.machine.memory_rate
            capacities[Resource(Kind.SENDS, node)] = self.link_rate
            capacities[Resource(Kind.RECEIVES, node)] = self.link_rate
        if self.switch_rate is not None:
            capacities[Resource(Kind.SWITCH, 0)] = self.switch_rate
        return capacities


def parse_rate(text: str) -> float:
    """Return the bytes per second of 400gbit, 3.2tbit or 50GB/s; raise ValueError for other texts.

    The two letters of B and b are not told apart by people, so bits are written as bit, and bytes need "/s".
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-z/]+)", text.strip().lower())
    factor = {**RATES, **BYTE_RATES}.get(match[2]) if match else None
    if not match or factor is None:
        raise ValueError("give a rate such as 400gbit or 50GB/s")
    rate = float(match[1]) * factor
    if not 0 < rate <= MAX_RATE:
        raise ValueError("give a rate above 0 and up to 8000tbit")
    return rate


def format_rate(rate: float) -> str:
    return f"{rate * BITS / 1e9:,.4g} Gbit/s"


def place(flow: Flow, nodes: int, placement: str) -> dict[str, int]:
    """Return the node of each process of a flow. The driver is on node 0.

    blocks: neighbours in the flow's order share a node, and each node has as many actors, or one more. pack: all are on
    the driver's node. spread: one per node in turn. Otherwise, ACTOR=NODE,...; the other actors are on the driver's
    node. Raise UsageError for an unknown actor, or a node that is not there.
    """
    actors = flow.actors
    if placement == "pack":
        numbers = dict.fromkeys(actors, 0)
    elif placement == "spread":
        numbers = {actor: position % nodes for position, actor in enumerate(actors)}
    elif placement == "blocks":
        # Not ceil(actors / nodes) on each: 9 actors would leave 3 of 8 nodes empty.
        count = max(nodes, len(actors))
        numbers = {actor: position * nodes // count for position, actor in enumerate(actors)}
    else:
        numbers = dict.fromkeys(actors, 0) | parse_places(placement, actors, nodes)
    return {DRIVER: 0, **numbers}


def parse_places(text: str, actors: Sequence[str], nodes: int) -> dict[str, int]:
    """Return the nodes of ACTOR=NODE,...; raise UsageError if it cannot be read."""
    places: dict[str, int] = {}
    for part in text.split(","):
        actor, _, number = part.partition("=")
        is_number = number.isascii() and number.isdigit()
        if not is_number:
            raise UsageError(
                f"--placement {text[:40]}: give blocks, pack, spread or ACTOR=NODE,..."
            )
        if actor not in actors:
            raise UsageError(f"--placement {actor[:40]}={number[:9]}: the flow has no such actor")
        if int(number[:9]) >= nodes:
            raise UsageError(f"--placement {actor}={number[:9]}: give a node from 0 to {nodes - 1}")
        places[actor] = int(number)
    return places
