"""Choose the node of each worker, and check that the nodes are as requested."""

from collections.abc import Mapping, Sequence
from typing import Any

from dataflow.errors import RunFailed, UsageError
from dataflow.plan.plan import Plan


def place_actors(plan: Plan, count: int) -> dict[str, int]:
    """Return the node of each actor: that of --placement, or round-robin with the driver's node last."""
    names = plan.worker_names[1:]
    if plan.options.placement == "pack":
        return dict.fromkeys(names, 0)
    if not plan.options.place:
        return {name: (index + 1) % count for index, name in enumerate(names)}
    nodes = plan.options.nodes_of_actors
    if max(nodes.values()) >= count:
        raise UsageError(f"--placement {plan.options.place}: the cluster has {count} nodes, numbered from 0")
    return {name: nodes.get(plan.workers[name].actor, 0) for name in names}


def check_placement(requested: Mapping[str, int], actual: Mapping[str, int]) -> None:
    """Raise RunFailed if a worker runs on another node than requested."""
    for name, node in requested.items():
        if actual[name] != node:
            raise RunFailed(f"{name} runs on node {actual[name]}, and node {node} was requested: try again")


def check_versions(environments: Sequence[Mapping[str, Any]]) -> None:
    """Raise RunFailed if a known node has other versions of Python, Ray or torch than the driver's node."""
    versions = [{"python": known.get("python"), **known.get("versions", {})} for known in environments]
    for index, there in enumerate(versions):
        for name in ("python", "ray", "torch"):
            if environments[index] and there.get(name) != versions[0].get(name):
                raise RunFailed(f"node {index} has {name} {there.get(name)}, and the driver's node has "
                                f"{versions[0].get(name)}: install the same version")  # fmt: skip
