"""What a run needs of memory and shared memory, refused beforehand where there is less."""

import argparse

import psutil

from common.flow.flow import FLOWS, Flow
from common.run.options import MINIMUM_STORE_BYTES, UsageError


def object_store_bytes(arguments: argparse.Namespace, flow: Flow) -> int:
    """The store's size for a private cluster: as asked, or Ray's default of 30 % of available memory.

    Raises:
        UsageError: two trips (the one under way and the one before, which queues may still hold) do
            not fit into the store, the store not into shared memory, or the payloads not into memory.
    """
    memory_bytes = psutil.virtual_memory().available
    shared_bytes = psutil.disk_usage("/dev/shm").free
    default_bytes = max(MINIMUM_STORE_BYTES, min(int(0.3 * memory_bytes), int(0.95 * shared_bytes)))
    store_bytes = arguments.object_store_bytes or default_bytes
    emitted_bytes = flow.query_bytes + sum(role.emits_bytes for role in flow.roles)
    needed_bytes = 2 * (flow.bytes_per_trip + emitted_bytes)
    if store_bytes > shared_bytes:
        raise UsageError(
            f"the object store of {_mib(store_bytes)} does not fit into the {_mib(shared_bytes)} free in /dev/shm: "
            "free some, enlarge it (docker run --shm-size), or lower --object-store-bytes"
        )
    if needed_bytes > store_bytes:
        raise UsageError(
            f"two trips of {flow.name} need {_mib(needed_bytes)} of object store and it has {_mib(store_bytes)}: "
            f"lower {_smaller(flow)}, or raise --object-store-bytes "
            f"(free shared memory: {_mib(shared_bytes)})"
        )
    need_memory(flow, needed_bytes)
    return store_bytes


def need_memory(flow: Flow, store_bytes: int = 0) -> None:
    """Refuse a flow whose payloads do not fit into memory beside `store_bytes`.

    Raises:
        UsageError: each sender keeps a pool of three, each reader what it last received.
    """
    emitted_bytes = flow.query_bytes + sum(role.emits_bytes for role in flow.roles)
    resident_bytes = 3 * emitted_bytes + flow.bytes_per_trip + store_bytes
    memory_bytes = psutil.virtual_memory().available
    if resident_bytes > memory_bytes:
        raise UsageError(
            f"{_mib(resident_bytes)} are needed and {_mib(memory_bytes)} of memory are free: lower {_smaller(flow)}"
        )


def _smaller(flow: Flow) -> str:
    return "--batch-size or --prompt-seq-len" if flow.name in FLOWS else "--payload-bytes or --roles"


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
