# SPDX-License-Identifier: Apache-2.0
"""Measure what else a time depends on: warm and cold copies, and the benchmark's own work."""

import mmap
import os
from collections.abc import Sequence
from typing import Any

import torch

from common.copies import copy_seconds, make_pair, time_host_copies
from common.timing import time_group
from dataflow.catalogue.catalogue import REFERENCE, TRANSPORTS
from dataflow.endpoints.actor import Actor, Endpoint, pass_messages
from dataflow.flows.flow import DRIVER, shrink_messages
from dataflow.plan.options import Options
from dataflow.plan.plan import Plan
from dataflow.trace.spans import count_faults

WARM_PASSES = 4
COLD_PASSES = 2
MAX_EVICTED_BYTES = 64 * 2**20  # larger than most caches


def measure_copies(plan: Plan) -> tuple[list[float], list[float], list[float], int]:
    """Return the seconds of each pass of copies, one per edge, and the page faults of one cold pass.

    The passes are warm, into memory that was used before, by --threads threads and by all cores; and cold, by --threads
    threads into host memory that is mapped anew for each copy. The first warm pass does not count. On GPUs, all
    are warm, from the GPU of the sender to that of the reader, which can be the same one. There are no cold passes
    then, and 0 faults.
    """
    flow = plan.sent_flow
    threads = plan.options.threads
    cores = len(os.sched_getaffinity(0))
    pairs = []
    for edge in flow.edges:
        sender = flow.actor(edge.source)
        reader = flow.actor(edge.reader)
        pair = make_pair(edge.bytes or 1, plan.gpu_of(sender), plan.gpu_of(reader))
        pairs.append(pair)
    threads_before = torch.get_num_threads()
    warm = _time_warm_passes(pairs, threads)
    all_cores = _time_warm_passes(pairs, cores)
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


def _time_warm_passes(pairs: Sequence[Sequence[torch.Tensor]], threads: int) -> list[float]:
    """Return the seconds of each pass, after one that does not count."""
    _copy_all(pairs, threads)
    return [_copy_all(pairs, threads) for _ in range(WARM_PASSES)]


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
    folder = plan.run_folder / "null"  # does not exist, so the progress stays in this process
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
    seconds = []
    for number in numbers[1:]:
        start, end = driver.progress.iteration(number)
        seconds.append(round(end - start, 9))
    return seconds
