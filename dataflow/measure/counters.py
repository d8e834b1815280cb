# SPDX-License-Identifier: Apache-2.0
"""Count what the timed iterations use: bytes, page faults, memory of processes, and the cores of the machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from common.cpu_time import CpuTime
from dataflow.measure.memory import HeldMemory, read_held_by, read_held_memory
from dataflow.plan.plan import Plan
from dataflow.records.schema import ProcessCost, Run
from dataflow.workers.worker_group import WorkerGroup


@dataclass(frozen=True)
class Counts:
    """What Ray, the page tables of all processes and the loopback interface have counted so far."""

    stored_bytes: int  # taken in by the object stores
    spilled_bytes: int  # written to disk by them
    raylet_faults: int  # page faults of private raylets
    faults: int  # page faults of all processes, without those of verifications
    loopback_bytes: int  # received by the loopback interface


class Counters:
    """Read the counters of the workers and of the machine, and set the costs of a run."""

    def __init__(self, plan: Plan, workers: WorkerGroup) -> None:
        self.plan = plan
        self.workers = workers
        self.cpu_time = CpuTime()
        self.first = self.read()
        self.begin = self.first  # of the timed iterations

    def read(self) -> Counts:
        """Ask all workers and Ray, and return what they have counted since their start, or since the costs were reset.

        The loopback interface counts the bytes of other programs, too.
        """
        counters = self.workers.counters()
        faults = counters["raylet_faults"]
        for cost in self.costs_by_process().values():
            faults += cost.minor_faults or 0
        interfaces = psutil.net_io_counters(pernic=True)
        loopback_bytes = interfaces["lo"].bytes_recv
        return Counts(**counters, faults=faults, loopback_bytes=loopback_bytes)

    def costs_by_process(self) -> dict[str, ProcessCost]:
        """Ask all workers, and return what each of their processes has used, by the names of its workers."""
        costs = self.workers.call("costs")
        return costs_by_process(costs, self.workers.worker_nodes)

    def begin_timed(self) -> None:
        """Begin to count, because the next iteration is the first timed one."""
        self.workers.call("reset_costs")
        self.begin = self.read()
        self.cpu_time.seconds = 0.0
        if self.workers.nodes:
            self.workers.nodes.begin()

    def set_costs(self, run: Run) -> None:
        """Set the costs of the timed iterations in a run."""
        end = self.read()
        run.stored_bytes = end.stored_bytes - self.begin.stored_bytes
        run.loopback_bytes = end.loopback_bytes - self.begin.loopback_bytes
        # Spilled bytes are those of all iterations: spilling slows later ones too.
        run.spilled_bytes = end.spilled_bytes - self.first.spilled_bytes
        if self.workers.nodes:
            run.node_costs = self.workers.nodes.end()
        held = self.workers.run_in_all(read_held_by)
        costs = self.workers.call("costs")
        run.processes = costs_by_process(costs, self.workers.worker_nodes, held)
        # The processes of an existing cluster are not descendants of this one.
        if not self.plan.options.address:
            raylet_faults = end.raylet_faults - self.begin.raylet_faults
            self.set_machine_use(run, raylet_faults)

    def set_machine_use(self, run: Run, raylet_faults: int) -> None:
        """Set what this run and other programs have used of the machine."""
        run.cpu_seconds = self.cpu_time.seconds
        if self.plan.transport.runtime.uses_ray:
            held = [read_held_memory(pid) for pid in self.workers.raylets]
            private_bytes, shared_bytes = sum_held(held)
            run.processes["raylet"] = ProcessCost(
                minor_faults=raylet_faults, private_bytes=private_bytes, shared_bytes=shared_bytes
            )
        self.cpu_time.save_machine_use(run)


def sum_held(held: Sequence[HeldMemory | None]) -> tuple[int | None, int | None]:
    """Return the private and the shared bytes of processes; None if one of them is not known."""
    private_bytes = 0
    shared_bytes = 0
    for memory in held:
        if memory is None:
            return None, None
        private_bytes += memory.private_bytes
        shared_bytes += memory.shared_bytes
    return private_bytes, shared_bytes


def costs_by_process(
    costs: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, int],
    held: Mapping[str, HeldMemory | None] | None = None,
) -> dict[str, ProcessCost]:
    """Return the costs by process. Workers that share one are named together (joined by +): the last one's costs count.

    costs: what `Endpoint.costs` returns, by worker. nodes: the node of each worker; two nodes can have equal process
    ids. held: what the process of each worker holds; None: nobody has asked.
    """
    workers_by_process: dict[tuple[int, int], list[str]] = {}
    for name, cost in costs.items():
        process = (nodes[name], cost["pid"])
        workers_by_process.setdefault(process, []).append(name)
    by_process = {}
    for names in workers_by_process.values():
        last = names[-1]
        cost = costs[last]
        private_bytes, shared_bytes = sum_held([held[last] if held else None])
        by_process["+".join(names)] = ProcessCost(
            peak_memory_bytes=cost["peak_memory_bytes"],
            minor_faults=cost["minor_faults"],
            private_bytes=private_bytes,
            shared_bytes=shared_bytes,
        )
    return by_process
