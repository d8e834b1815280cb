"""Measure reference times of this machine per edge: a warm copy (memcpy), a cold copy, and 8 bytes through a pipe."""

import mmap
import os
import signal
import time
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import torch

from common.endpoints.tensors import synchronise
from common.flows.flow import DRIVER, Flow
from common.plan.plan import Plan
from common.trace.recorder import count_faults

MESSAGE = bytes(8)  # as long as a sequence number
WARM_PASSES, COLD_PASSES = 4, 2


class Copies(NamedTuple):
    """Seconds of each pass of copies: one copy per edge, one edge after the other."""

    warm: list[float]  # by --threads threads
    all_cores: list[float]  # the same by all cores
    cold: list[float]  # by --threads threads into fresh host memory; none for tensors on GPUs
    cold_faults: int  # page faults of one cold pass


def measure_copies(plan: Plan) -> Copies:
    """Measure warm copies, into memory that was used before, and cold ones. The first warm pass does not count.

    The memory of cold copies is mapped anew for each copy, whatever the settings of malloc are.
    """
    flow, threads, cores = plan.sent_flow, plan.options.threads, len(os.sched_getaffinity(0))
    pairs = []
    for edge in flow.edges:
        devices = [plan.gpu_of(flow.actor(task)) for task in (edge.source, edge.reader)]
        pairs.append([torch.ones(edge.bytes or 1, dtype=torch.uint8, device=device) for device in devices])
    threads_before = torch.get_num_threads()
    warm = [_copy_all(pairs, threads) for _ in range(1 + WARM_PASSES)][1:]
    all_cores = [_copy_all(pairs, cores) for _ in range(1 + WARM_PASSES)][1:]
    cold, faults = [], 0
    passes = COLD_PASSES if plan.device == "cpu" else 0  # page faults are a cost of host memory
    for _ in range(passes):
        seconds, faults_before = 0.0, count_faults()
        for source, _ in pairs:
            fresh = mmap.mmap(-1, source.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # as malloc does
            memory = torch.frombuffer(fresh, dtype=torch.uint8)
            seconds += _copy_all([[source, memory]], threads)
        cold.append(round(seconds, 9))
        faults = count_faults() - faults_before
    torch.set_num_threads(threads_before)
    return Copies(warm, all_cores, cold, faults)


def _copy_all(pairs: Sequence[Sequence[torch.Tensor]], threads: int) -> float:
    """Copy each source to its destination with so many threads, and return the seconds."""
    torch.set_num_threads(threads)
    start = time.perf_counter()
    for source, destination in pairs:
        destination.copy_(source)
    synchronise()
    return round(time.perf_counter() - start, 9)


def measure_pipe(flow: Flow, passes: int = 50) -> list[float]:
    """Return the seconds of each pass: each task reads 8 bytes from each input and writes 8 bytes to each output.

    Each actor is a forked process that sleeps while it waits. If one of them dies, the monitor ends this process. They
    use no lock that another thread of this process may hold: they import, print and log nothing.
    """
    pipes = {edge: os.pipe() for edge in flow.edges}
    tasks = [DRIVER, *(task.name for task in flow.tasks)]
    inputs = {task: [pipes[edge][0] for edge in flow.edges_to(task)] for task in tasks}
    outputs = {task: [pipes[edge][1] for edge in flow.edges_from(task)] for task in tasks}
    children = []
    for actor in flow.actors:
        child = os.fork()
        if not child:
            _run_actor([(inputs[task.name], outputs[task.name]) for task in flow.tasks_of(actor)])
        children.append(child)
    samples = []
    for _ in range(passes // 10 + passes):
        start = time.perf_counter()
        for descriptor in outputs[DRIVER]:
            os.write(descriptor, MESSAGE)
        for descriptor in inputs[DRIVER]:
            os.read(descriptor, len(MESSAGE))
        samples.append(round(time.perf_counter() - start, 9))
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for descriptor in chain(*pipes.values()):
        os.close(descriptor)
    return samples[passes // 10 :]


def _run_actor(tasks: list[tuple[list[int], list[int]]]) -> None:
    """Read and write the messages of an actor's tasks until this process is killed."""
    try:
        while True:
            for inputs, outputs in tasks:
                for descriptor in inputs:
                    os.read(descriptor, len(MESSAGE))
                for descriptor in outputs:
                    os.write(descriptor, MESSAGE)
    finally:
        os._exit(1)
