"""What a run needs of this machine, by its row; refused beforehand where there is less."""

import socket

import psutil

from common.errors import UsageError, Waived
from common.flow.catalogue import flag_of, sizes_of
from common.flow.flow import Flow
from common.plan.options import MINIMUM_STORE_BYTES, Options
from common.record.rows import Row
from common.runtime import gpus
from common.units import format_bytes

CHANNEL_HEADROOM_BYTES = 64 * 1024  # of a graph's channel, for what is not payload; a tensor's frame is under 1 KiB


def need_gpus(row: Row, found: int, actors: int) -> int:
    """How many GPUs the row may use of those found.

    Raises:
        Waived: there are fewer than it needs, or what it goes through is not installed.
        UsageError: a setting keeps it from using them.
    """
    needed = max(row.needs.gpus, actors if row.needs.gpu_each else 0)
    if found < needed:
        plural = "s" * (needed > 1)
        raise Waived(f"{row.transport} needs {needed} GPU{plural} and found {found}: use another --transport")
    gpus.need_modules(row.needs.modules)
    if found and row.needs.one_machine:  # CUDA IPC: all on the same one
        gpus.refuse_expandable_segments()
        return 1
    return needed or found


def need_cluster(address: str) -> None:
    """Refuse an address at which nobody answers; Ray would try for a minute. `auto` is Ray's to find.

    Raises:
        UsageError: it is none, or nobody listens there.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--address {address}: give ip:port, as `ray start --head` prints it, or auto")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"--address {address}: nobody answers there ({error}): is the cluster running?") from None


def object_store_bytes(row: Row, options: Options, flow: Flow) -> int:
    """The store's size for a private cluster: as asked, or Ray's default of 30 % of available memory.

    Raises:
        UsageError: what the row keeps in it does not fit into the store, or the store not into shared memory.
    """
    memory_bytes = psutil.virtual_memory().available
    shared_bytes = psutil.disk_usage("/dev/shm").free
    default_bytes = max(MINIMUM_STORE_BYTES, min(int(0.3 * memory_bytes), int(0.95 * shared_bytes)))
    store_bytes = options.object_store_bytes or default_bytes
    needed_bytes, trips = stored_bytes(row, options, flow), stored_trips(row, options)
    if store_bytes > shared_bytes:
        raise UsageError(
            f"the object store of {format_bytes(store_bytes)} does not fit into the {format_bytes(shared_bytes)} free "
            "in /dev/shm: free some, enlarge it (docker run --shm-size), or lower --object-store-bytes"
        )
    if needed_bytes > store_bytes:
        raise UsageError(
            f"{'two' if trips == 2 else trips} trips of {flow.name} need {format_bytes(needed_bytes)} of object store "
            f"and it has {format_bytes(store_bytes)}: lower {_smaller(options)}, or raise --object-store-bytes "
            f"(free shared memory: {format_bytes(shared_bytes)})"
        )
    return store_bytes


def stored_trips(row: Row, options: Options) -> int:
    """How many trips the object store holds: those under way, and the one before, which queues may still hold.

    Of a graph whose readers map its channels: those under way, and as many that readers hold until they are checked.
    With fewer buffers a held view blocks the writer, and more than a path has places for never arrive.
    """
    return options.in_flight + (options.in_flight if row.views and row.needs.store == "channels" else 1)


def stored_bytes(row: Row, options: Options, flow: Flow) -> int:
    """What lies in the object store at a time."""
    trips = stored_trips(row, options)
    if row.needs.store == "messages":
        by_value = sum(edge.message.shipped_bytes for edge in flow.edges)
        return trips * (by_value + flow.shipped_bytes)
    if row.needs.store == "channels":  # they are objects of the store too, made once
        return trips * flow.shipped_bytes + (len(flow.tasks) + 1) * trips * CHANNEL_HEADROOM_BYTES
    return 0


def need_memory(row: Row, options: Options, flow: Flow) -> None:
    """Refuse what does not fit into memory, or into /dev/shm.

    Raises:
        UsageError: each sender keeps its pool, each reader what it last received.
    """
    pool_bytes = options.slots * flow.emitted_bytes
    shared_bytes = psutil.disk_usage("/dev/shm").free
    if row.needs.segments and pool_bytes > shared_bytes:
        raise UsageError(
            f"{row.transport} lays {format_bytes(pool_bytes)} into /dev/shm, where {format_bytes(shared_bytes)} are "
            f"free: free some, enlarge it (docker run --shm-size), or lower {_smaller(options)}"
        )
    needed_bytes, memory_bytes = resident_bytes(row, options, flow), psutil.virtual_memory().available
    if needed_bytes > memory_bytes:
        raise UsageError(
            f"{format_bytes(needed_bytes)} are needed and {format_bytes(memory_bytes)} of memory are free: "
            f"lower {_smaller(options)}"
        )


def resident_bytes(row: Row, options: Options, flow: Flow) -> int:
    """What a run keeps in memory: pools, what readers hold, a trainer's micro-batches, and what the store has."""
    replicas, ranks = options.counts("replicas"), options.counts("ranks")

    def processes(task: str) -> int:
        actor = flow.actor(task)
        return replicas.get(actor, 1) * ranks.get(actor, 1)

    pools = flow.query.bytes + sum(task.emits.bytes * processes(task.name) for task in flow.tasks)
    inputs = sum(edge.bytes * processes(edge.reader) for edge in flow.edges)
    held_bytes = options.slots * pools + options.in_flight * inputs
    if options.sink == "trainer":
        messages = [edge.message for edge in flow.edges_to(flow.tasks[-1].name)]
        trips = options.trips_in_a_row * options.relay_episodes
        trainers = options.trainer_count * options.train_ranks if row.is_chatlearns else 1
        held_bytes += trips * sum(message.shipped_bytes for message in messages)  # what views are of, they bring along
        held_bytes += trips * sum(message.bytes for message in messages) * trainers * options.epochs
    return held_bytes + stored_bytes(row, options, flow)


def _smaller(options: Options) -> str:
    """The flags that make less of it."""
    own = [flag_of(name) for name in sizes_of(options.flow, options.message)][:2]
    sizes = ["--payload"] if options.payload else own
    return " or ".join([*sizes, *["--in-flight"] * (options.in_flight > 1)])
