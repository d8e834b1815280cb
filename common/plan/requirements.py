"""Check that this machine has the GPUs, modules, memory and cluster that a configuration needs.

A missing GPU or module skips the configuration (Skipped). Too little memory is an error that names the flag to lower.
"""

import importlib.util
import math
import os
import socket
from importlib import metadata
from pathlib import Path

import psutil

from common.errors import Skipped, UsageError
from common.flows.catalogue import flag_name, flow_sizes
from common.flows.flow import Flow
from common.plan.options import MIN_STORE_BYTES, Options
from common.records.environment import cuda_version
from common.transports.catalogue import Transport
from common.units import format_bytes

CHANNEL_HEADROOM_BYTES = 64 * 1024  # per channel of a graph, besides the payload; a tensor's frame is under 1 KiB
# Modules with one wheel per CUDA version. The wheel for another version than torch's is found, and fails when used.
CUDA_WHEELS = {
    "cupy": ("cupy-cuda{}x", "pip uninstall -y cupy-cuda12x cupy-cuda13x && pip install cupy-cuda{}x"),
    "nixl": ("nixl-cu{}", "pip install --no-deps nixl==1.5.1 nixl-cu{}==1.5.1"),
}


def count_gpus() -> int:
    """Return the GPUs that a process may use, without importing torch; 0 if torch is built for CPUs."""
    if cuda_version() is None:
        return 0
    devices = len(list(Path("/dev").glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return devices if visible is None else min(devices, sum(bool(index.strip()) for index in visible.split(",")))


def resolve_device(transport: Transport, device: str) -> tuple[str, int]:
    """Return "cpu" or "cuda", and the number of GPUs that may be used; raise UsageError if --device cuda cannot be."""
    gpus = count_gpus() if device != "cpu" else 0
    host_only = transport.requirements.host_memory_only
    if device == "cuda" and (host_only or not gpus):
        reason = f"{transport.name} moves host memory" if host_only and gpus else "no GPU found"
        raise UsageError(f"--device cuda: {reason}. Use --device cpu.")
    return ("cuda", gpus) if gpus and not host_only else ("cpu", 0)


def require_gpus(transport: Transport, gpus: int, actors: int) -> int:
    """Return how many GPUs the transport uses; raise Skipped if there are too few, UsageError if it cannot use them."""
    required = actors if transport.requirements.gpu_per_actor else transport.requirements.gpus
    if gpus < required:
        raise Skipped(f"{transport.name} needs {required} GPUs and this machine has {gpus}: use another --transport")
    if not gpus or not transport.requirements.single_host:
        return required or gpus
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if "expandable_segments:True" in os.environ.get(variable, ""):
            raise UsageError(f"CUDA IPC cannot share expandable segments: remove expandable_segments from {variable}")
    return 1  # CUDA IPC: all actors use the same GPU


def require_modules(transport: Transport) -> None:
    """Raise Skipped if a module that the transport needs is not installed."""
    cuda = (cuda_version() or "12").split(".")[0]
    for module in transport.requirements.modules:
        wheel, command = [text.format(cuda) for text in CUDA_WHEELS.get(module, ("", f"pip install {module}"))]
        if not importlib.util.find_spec(module) or (wheel and not any(metadata.distributions(name=wheel))):
            raise Skipped(f"{transport.name} needs {wheel or module}, which is not installed: {command}")


def require_cluster(address: str) -> None:
    """Raise UsageError if nothing listens at --address. Ray would try for a minute; it finds "auto" itself."""
    host, _, port = address.rpartition(":")
    try:
        if address != "auto":
            socket.create_connection((host, int(port)), timeout=3).close()
    except (OSError, OverflowError, ValueError) as error:
        advice = "give ip:port of a running cluster, as `ray start --head` prints it, or auto"
        raise UsageError(f"--address {address}: no answer ({error}): {advice}") from None


def require_memory(transport: Transport, options: Options, flow: Flow) -> int:
    """Return the bytes of a private cluster's object store, 0 without Ray; raise UsageError if memory is too small."""
    shared_bytes, memory_bytes = psutil.disk_usage("/dev/shm").free, psutil.virtual_memory().available
    # 30 % is Ray's own default.
    default_bytes = max(MIN_STORE_BYTES, min(int(0.3 * memory_bytes), int(0.95 * shared_bytes)))
    store_bytes = (options.object_store_bytes or default_bytes) if transport.runtime.uses_ray else 0
    in_store_bytes = stored_bytes(transport, options, flow)
    pool_bytes = options.slots * flow.sent_bytes if transport.requirements.shared_memory else 0
    names = ["payload"] if options.payload else list(flow_sizes(options.flow, options.message))[:2]
    lower = "lower " + " or ".join(map(flag_name, [*names, *(["in_flight"] if options.in_flight > 1 else [])]))
    enlarge = "free some or enlarge it (docker run --shm-size), or"
    for name, needed_bytes, free_bytes, advice in (
        ("/dev/shm for messages", pool_bytes, shared_bytes, f"{enlarge} {lower}"),
        ("memory", resident_bytes(transport, options, flow), memory_bytes, lower),
        ("/dev/shm for the object store", store_bytes, shared_bytes, f"{enlarge} lower --object-store-bytes"),
        ("object store", in_store_bytes, store_bytes, f"{lower}, or raise --object-store-bytes"),
    ):
        if needed_bytes > free_bytes:
            raise UsageError(f"{transport.name} needs {format_bytes(needed_bytes)} of {name} with {flow.name}, and "
                             f"{format_bytes(free_bytes)} are free: {advice}")  # fmt: skip
    return store_bytes


def stored_iterations(transport: Transport, options: Options) -> int:
    """Return how many iterations the object store holds: those in flight, and the one before, in queues.

    A graph whose readers map its channels holds those in flight, and as many that readers hold until verification.
    With fewer buffers a view that is held blocks the writer, and later messages never arrive.
    """
    if transport.gives_views and transport.requirements.store == "channels":
        return 2 * options.in_flight
    return options.in_flight + 1


def stored_bytes(transport: Transport, options: Options, flow: Flow) -> int:
    """Return the bytes that are in the object store at the same time."""
    iterations = stored_iterations(transport, options)
    if transport.requirements.store == "messages":
        copied_bytes = sum(edge.message.serialised_bytes for edge in flow.edges)
        return iterations * (copied_bytes + flow.serialised_bytes)
    if transport.requirements.store == "channels":  # they are objects of the store, made once
        return iterations * (flow.serialised_bytes + (len(flow.tasks) + 1) * CHANNEL_HEADROOM_BYTES)
    return 0


def resident_bytes(transport: Transport, options: Options, flow: Flow) -> int:
    """Return the bytes of memory of a run: pools, inputs that readers hold, a trainer's samples, and the store."""
    processes = {task.name: math.prod(options.process_counts(task.actor)) for task in flow.tasks}
    pools = flow.query.bytes + sum(task.sends.bytes * processes[task.name] for task in flow.tasks)
    inputs = sum(edge.bytes * processes.get(edge.reader, 1) for edge in flow.edges)
    total = options.slots * pools + options.in_flight * inputs + stored_bytes(transport, options, flow)
    if options.sink == "trainer":
        chatlearn = options.chatlearn
        iterations = options.group_size * (chatlearn.relay_episodes if chatlearn else 1)
        trainers = chatlearn.trainer_count(options.flow) if chatlearn else 1
        for edge in flow.edges_to(flow.tasks[-1].name):  # the dataset keeps views with their storage
            total += iterations * (edge.message.serialised_bytes + edge.bytes * trainers)
    return total
