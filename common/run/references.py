"""Measure reference times of this machine per edge: a warm copy (memcpy), a cold copy, and 8 bytes through a pipe."""

import mmap
import os
import signal
import time
from itertools import chain

import torch

from common.endpoints.tensors import synchronise
from common.flows.flow import DRIVER, Flow
from common.plan.plan import Plan
from common.trace.recorder import count_faults

MESSAGE = bytes(8)  # as long as a sequence number


def measure_memcpy(plan: Plan, threads: int, passes: int = 6) -> list[float]:
    """Return the seconds of each pass with so many threads: one warm copy per edge, one edge after the other.

    Two more passes come first and are not in the result.
    """
    flow = plan.task_flow
    pairs = []
    for edge in flow.edges:
        devices = [plan.gpu_of(flow.actor(task)) for task in (edge.source, edge.reader)]
        pairs.append([torch.ones(edge.bytes or 1, dtype=torch.uint8, device=device) for device in devices])
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    samples = []
    for _ in range(2 + passes):
        start = time.perf_counter()
        for source, destination in pairs:
            destination.copy_(source)
        synchronise()
        samples.append(round(time.perf_counter() - start, 9))
    torch.set_num_threads(threads_before)
    return samples[2:]


def measure_cold_copy(plan: Plan, threads: int, passes: int = 3) -> tuple[list[float], int]:
    """Return the seconds of each pass, and the page faults of one pass: one copy per edge into fresh host memory.

    The memory is mapped anew for each copy, whatever the settings of malloc are, and unmapped outside of the clock.
    """
    edges = [edge for edge in plan.task_flow.edges if edge.bytes]
    sources = {edge: torch.ones(edge.bytes, dtype=torch.uint8) for edge in edges}
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    samples, faults = [], 0
    for _ in range(passes):
        seconds, faults_before = 0.0, count_faults()
        for edge in edges:
            memory = torch.frombuffer(mmap.mmap(-1, edge.bytes), dtype=torch.uint8)
            start = time.perf_counter()
            memory.copy_(sources[edge])
            seconds += time.perf_counter() - start
        samples.append(round(seconds, 9))
        faults = count_faults() - faults_before
    torch.set_num_threads(threads_before)
    return samples, faults


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
