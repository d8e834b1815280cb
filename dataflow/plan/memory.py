"""Compute the memory that a configuration needs, and reject what this machine does not have."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dataflow.errors import UsageError
from dataflow.plan.options import MIN_STORE_BYTES
from dataflow.units import format_bytes

if TYPE_CHECKING:  # plan.py imports this module
    from dataflow.plan.plan import Plan

CGROUPS, MY_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# By version of control groups: the names of limit and usage, and how those of sums over a group and its children begin.
MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    2: ("memory.max", "memory.current", ""),
}

CHANNEL_HEADROOM_BYTES = 64 * 1024  # per channel of a graph, besides the payload; a tensor's frame is under 1 KiB


def limited_memory() -> float:
    """Return the bytes of memory that a container's limit (cgroup) leaves to new processes; infinity without a limit.

    Pages of files count as free, because the kernel drops them first.
    """
    free_bytes = [math.inf]
    for line in MY_CGROUPS.read_text().splitlines() if MY_CGROUPS.exists() else []:
        _, controllers, group = line.split(":", 2)  # version 2 names no controllers
        if controllers and "memory" not in controllers.split(","):
            continue
        folder = CGROUPS / ("memory" if controllers else "") / group.lstrip("/")
        limit, usage, prefix = MEMORY_FILES[1 if controllers else 2]
        for parent in (folder, *folder.parents):  # a limit of any of them counts; in a container, the root has it
            with suppress(OSError, KeyError, ValueError):  # without a limit, it is no number
                statistics = dict(line.split() for line in (parent / "memory.stat").read_text().splitlines())
                file_bytes = sum(int(statistics[f"{prefix}{kind}_file"]) for kind in ("active", "inactive"))
                used_bytes = int((parent / usage).read_text()) - file_bytes
                free_bytes.append(max(0, int((parent / limit).read_text()) - used_bytes))
    return min(free_bytes)


def available_memory() -> tuple[int, str]:
    """Return the bytes of memory that new processes can have, and their name in an error message."""
    machine_bytes, container_bytes = psutil.virtual_memory().available, limited_memory()
    if container_bytes < machine_bytes:
        return int(container_bytes), "memory under the limit of this container (cgroup)"
    return machine_bytes, "memory"


def require_memory(plan: "Plan") -> int:
    """Return the bytes of a private cluster's object store, 0 without Ray; raise UsageError if memory is too small."""
    if not os.access("/dev/shm", os.W_OK):
        raise UsageError("/dev/shm is missing or cannot be written, and a run needs it: mount a tmpfs there")
    shared_bytes, (memory_bytes, memory_name) = psutil.disk_usage("/dev/shm").free, available_memory()
    transport, options, flow, in_store_bytes = plan.transport, plan.options, plan.task_flow, stored_bytes(plan)
    # 30 % is Ray's own default.
    default_bytes = 2 * in_store_bytes if options.preallocate_store else min(0.3 * memory_bytes, 0.95 * shared_bytes)
    store_bytes = options.object_store_bytes or max(MIN_STORE_BYTES, int(default_bytes))
    if not transport.runtime.uses_ray:
        store_bytes = 0
    pool_bytes = flow.slots(options.in_flight) * flow.sent_bytes if transport.requirements.shared_memory else 0
    smaller, enlarge = "send smaller messages (--help sizes)", "enlarge it (docker run --shm-size), or"
    for name, needed_bytes, free_bytes, advice in (
        ("/dev/shm for messages", pool_bytes, shared_bytes, f"{enlarge} {smaller}"),
        (memory_name, resident_bytes(plan), memory_bytes, smaller),
        ("/dev/shm for the object store", store_bytes, shared_bytes, f"{enlarge} lower --object-store-bytes"),
        ("object store", in_store_bytes, store_bytes, f"{smaller}, or raise --object-store-bytes"),
    ):
        if needed_bytes > free_bytes:
            raise UsageError(f"{transport.name} needs {format_bytes(needed_bytes)} of {name} with {flow.name}, and "
                             f"{format_bytes(free_bytes)} are free: {advice}")  # fmt: skip
    return store_bytes


def stored_iterations(plan: "Plan") -> int:
    """Return how many iterations the object store holds: those in flight, and the one before, in queues."""
    in_flight = plan.options.in_flight
    if plan.transport.gives_views and plan.transport.stores == "channels":
        # Readers hold as many views until verification. With fewer buffers, a view blocks the writer forever.
        return 2 * in_flight
    return in_flight + 1


def stored_bytes(plan: "Plan") -> int:
    """Return the bytes that are in the object store at the same time."""
    flow, stores = plan.task_flow, plan.transport.stores
    if not stores:
        return 0
    added_bytes = sum(edge.message.serialised_bytes for edge in flow.edges)  # of readers that get them by value
    if stores == "channels":  # they are objects of the store, made once
        added_bytes = (len(flow.tasks) + 1) * CHANNEL_HEADROOM_BYTES
    return stored_iterations(plan) * (sum(message.serialised_bytes for message in flow.messages) + added_bytes)


def resident_bytes(plan: "Plan") -> int:
    """Return the bytes of memory of a run: pools, inputs that readers hold, a trainer's samples, and the store."""
    options, flow = plan.options, plan.task_flow
    copies = 2 if options.copy_in else 1  # the producers' own, and those in shared memory
    is_in_place = flow.has_parameters and not plan.transport.requirements.shared_memory
    slots = 1 if is_in_place else flow.slots(options.in_flight)
    # Readers hold the inputs of the last iterations while the next one arrives.
    pools, inputs = slots * copies * flow.sent_bytes, (options.in_flight + 1) * flow.bytes_per_iteration
    return pools + inputs + stored_bytes(plan) + plan.added.memory_bytes
