# SPDX-License-Identifier: Apache-2.0
"""Measure what else a time depends on: warm and cold copies, the benchmark's own work, and the use of the CPUs."""

import mmap
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psutil
import torch

from common.copies import copy_seconds, make_pair, time_host_copies
from common.timing import time_group
from dataflow.catalogue.catalogue import REFERENCE, TRANSPORTS
from dataflow.endpoints.actor import Actor, Endpoint, pass_messages
from dataflow.flows.flow import DRIVER, shrink_messages
from dataflow.plan.options import Options
from dataflow.plan.plan import Plan
from dataflow.records.machine import read_cpu_seconds
from dataflow.trace.spans import count_faults

WARM_PASSES = 4
COLD_PASSES = 2
MAX_EVICTED_BYTES = 64 * 2**20  # larger than most caches
CPUCLOCK_SCHED = 2  # Linux, include/linux/posix-timers.h: the CPU clock of process p has the number (~p << 3) | 2


def measure_copies(plan: Plan) -> tuple[list[float], list[float], list[float], int]:
    """Return the seconds of each pass of copies, one per edge, and the page faults of one cold pass.

    The passes are warm, into memory that was used before, by --threads threads and by all cores; and cold, by --threads
    threads into host memory that is mapped anew for each copy. The first warm pass does not count. On GPUs, all
    are warm, from the GPU of the sender to that of the reader, which can be the same one.
    """
    flow = plan.sent_flow
    threads = plan.options.threads
    cores = len(os.sched_getaffinity(0))
    pairs = []
    for edge in flow.edges:
        senders, readers = (plan.gpu_of(flow.actor(task)) for task in (edge.source, edge.reader))
        pairs.append(make_pair(edge.bytes or 1, senders, readers))
    threads_before = torch.get_num_threads()
    warm = [_copy_all(pairs, threads) for _ in range(1 + WARM_PASSES)][1:]
    all_cores = [_copy_all(pairs, cores) for _ in range(1 + WARM_PASSES)][1:]
    cold: list[float] = []
    faults = 0
    passes = COLD_PASSES if plan.device == "cpu" else 0  # page faults are a cost of host memory
    for _ in range(passes):
        seconds = 0.0
        faults_before = count_faults()
        for source, _ in pairs:
            # As malloc does.
            fresh = mmap.mmap(-1, source.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory = torch.frombuffer(fresh, dtype=torch.uint8)
            seconds += _copy_all([[source, memory]], threads)
        cold.append(round(seconds, 9))
        faults = count_faults() - faults_before
    torch.set_num_threads(threads_before)
    return warm, all_cores, cold, faults


def _copy_all(pairs: Sequence[Sequence[torch.Tensor]], threads: int) -> float:
    """Copy each source to its destination with so many threads, and return the seconds."""
    torch.set_num_threads(threads)
    return copy_seconds(pairs)


def measure_host_copies(plan: Plan) -> dict[str, list[float]]:
    """Return the seconds of each pass of copies between GPUs and host memory, one per edge; nothing without GPUs."""
    if plan.device == "cpu":
        return {}
    flow = plan.sent_flow
    copies = []
    for edge in flow.edges:
        gpu = plan.gpu_of(flow.actor(edge.source))
        copies.append((edge.bytes or 1, gpu))
    return time_host_copies(copies, WARM_PASSES)


def measure_null_transport(plan: Plan, passes: int = 20) -> list[float]:
    """Return the seconds of each pass of the benchmark's own work: an iteration whose messages are passed by calls.

    The timing loop and the endpoints are those of a run. The messages have as many fields, of 8 bytes each. Before each
    pass, the bytes of an iteration are copied, so that the caches are cold, unless readers get views that are not
    verified after each iteration. Wake-ups of processes, and what flags such as --message packed ask for, are left out.
    """
    threads_before = torch.get_num_threads()
    options = Options(transport="memcpy", threads=plan.options.threads)
    flow = shrink_messages(plan.task_flow)
    folder = plan.run_folder / "null"
    null_plan = Plan(TRANSPORTS[REFERENCE], options, flow, run_folder=folder)
    flow = null_plan.task_flow
    driver = Endpoint(null_plan, DRIVER)
    actors = {name: Actor(null_plan, name) for name in flow.actors}

    def send(number: int) -> Any:
        return pass_messages(
            flow, actors, lambda payload, edge: payload, driver.make_payload(number)
        )

    is_warm = plan.expects_views and plan.options.group_size > plan.options.in_flight
    evicted_bytes = 0 if is_warm else min(plan.sent_flow.bytes_per_iteration, MAX_EVICTED_BYTES)
    count = evicted_bytes // 2  # read, and then written
    pair = [torch.ones(count, dtype=torch.uint8) for _ in range(2)]
    numbers = range(1, 2 + passes)  # the first pass does not count
    for number in numbers:
        _copy_all([pair], plan.options.threads)
        time_group([number], 1, send, driver.receive, driver.progress.ended)
    torch.set_num_threads(threads_before)
    return [round(end - start, 9) for start, end in map(driver.progress.iteration, numbers[1:])]


class MachineUse(NamedTuple):
    """How the cores of the machine were used, each as a mean number of cores."""

    other_cores: float  # by other programs
    idle_cores: float
    steal_cores: float  # by other virtual machines


class CpuTime:
    """Add up the CPU seconds of this process and its descendants, and those between `start` and `stop`.

    Processes that begin between `start` and `stop` count from their beginning, and processes that end count until their
    clock was read last. To read the clock of another process takes a microsecond.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._total = 0.0
        self._pids: list[int] = []  # this process and its descendants
        self._pids_of_machine: list[int] = []  # when they were searched
        self._clocks: dict[int, float] = {}
        self._begin = self._read_machine()

    def start(self) -> None:
        # What processes have used that began since `stop` does not count. The search for them takes long, so it is left
        # out if no process of the machine has begun or ended.
        if psutil.pids() != self._pids_of_machine:
            self._search()
        self._advance(self._pids)

    def stop(self) -> None:
        self.seconds += self._advance(self._pids)
        # New processes are searched last, because the search takes longer than reading all clocks.
        known = set(self._pids)
        self._search()
        new = [pid for pid in self._pids if pid not in known]
        self.seconds += self._advance(new)

    def machine_use(self) -> MachineUse:
        """Return how the cores of the machine were used since this was made.

        The kernel counts the time of all processes in ticks of 10 ms per core, so short periods are not precise.
        """
        differences = zip(self._read_machine(), self._begin, strict=True)
        seconds, busy, steal, own = (now - then for now, then in differences)
        idle = (os.cpu_count() or 1) * seconds - busy - steal
        return MachineUse(
            other_cores=round(max(0.0, busy - own) / seconds, 3),
            idle_cores=round(max(0.0, idle) / seconds, 3),
            steal_cores=round(steal / seconds, 3),
        )

    def _read_machine(self) -> tuple[float, float, float, float]:
        """Return the seconds of: clock, all processes of the machine, hypervisor, and this run."""
        self._search()
        self._advance(self._pids)
        return time.monotonic(), *read_cpu_seconds(), self._total

    def _search(self) -> None:
        """Find the descendants of this process."""
        self._pids_of_machine = psutil.pids()
        descendants = psutil.Process().children(recursive=True)
        self._pids = [os.getpid(), *(child.pid for child in descendants)]

    def _advance(self, pids: list[int]) -> float:
        """Read the clocks of these processes, and return the seconds since they were read last."""
        added = 0.0
        for pid in pids:
            with suppress(OSError):  # the process has ended
                seconds = time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
                earlier = self._clocks.get(pid, 0.0)
                if earlier > seconds:  # another process has this id now
                    earlier = 0.0
                added += seconds - earlier
                self._clocks[pid] = seconds
        self._total += added
        return added
