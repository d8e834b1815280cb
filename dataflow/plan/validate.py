"""Check that flags fit each other, and that this machine has what a configuration needs.

Every rule prevents a hang, a crash, a wrong number, or a record of something that did not happen.
"""

import importlib.util
import math
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from common import flags as script_flags
from dataflow.catalogue.catalogue import Transport
from dataflow.errors import Skipped, UsageError
from dataflow.flows.catalogue import flag_name
from dataflow.flows.flow import Flow
from dataflow.flows.message import jagged_message
from dataflow.plan.options import FORMS, RESULTS, Options
from dataflow.records.machine import cuda_version
from dataflow.studies import studies

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CGROUPS, MY_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def find_errors(transport: Transport, options: Options, flow: Flow) -> Iterator[str]:
    """Yield one line for each rule that is broken: what is wrong, and what to do."""
    label, cores = transport.label, len(os.sched_getaffinity(0))
    if options.zero_copy and (
        transport.runtime.name != "store" or transport.name in ("bytes", "numpy")
    ):
        yield f"--zero-copy: {label} puts no tensors into the object store: leave it out"
    if options.copy_in and (
        not transport.requirements.shared_memory or options.message == "packed"
    ):
        yield f"--copy-in: {label} does not send what its producers write into shared memory: leave it out"
    for flag in (flag for flag in ("reuse_buffers", "one_by_one") if getattr(options, flag)):
        if not transport.can_receive_in_place:
            yield f"{flag_name(flag)}: readers of {label} do not fetch their messages: leave it out"
    if options.registration != "once" and not transport.registers_memory:
        yield f"--registration: {label} registers no memory: leave it out"
    if options.preallocate_store and (options.address or not transport.runtime.uses_ray):
        yield "--preallocate-store is for the object store of a private Ray cluster: leave it out"
    if options.huge_pages and not (HUGE_PAGES.exists() and "[never]" not in HUGE_PAGES.read_text()):
        yield f"--huge-pages: this machine does not give any: write madvise into {HUGE_PAGES}"
    if transport.runtime.uses_ray and re.search(
        "[\udc80-\udcff]", str(RESULTS)
    ):  # bytes that Python could not decode
        yield f"{label}: Ray cannot start in a folder whose name is not {sys.getfilesystemencoding()}: set PYTHONUTF8=1"
    if options.threads > cores:
        yield f"--threads {options.threads}: there are {cores} cores: give {cores} or less"
    if options.address and not transport.can_cross_nodes:
        yield f"--address: {label} runs on one machine, without a cluster: leave it out"
    if options.copy_out and not (transport.gives_views or options.zero_copy or flow.has_parameters):
        yield f"--copy-out: readers of {label} own a copy already: leave it out"
    # The flow has the fields and actors that flags need, and it does not block.
    if options.placement != "pack" and not options.address:
        yield "--placement: a private cluster has one node: give --address too, or use dataflow nodes"
    if options.placement not in ("pack", "spread") and not options.nodes_of_actors:
        yield f"--placement {options.placement}: give pack, spread or ACTOR=NODE,..."
    for actor, node in options.nodes_of_actors.items():
        if actor not in flow.actors or node < 0:
            yield f"--placement {actor}={node}: give a node from 0 for one of {', '.join(flow.actors)}"
    # One in each channel and one in each actor. Ray gives edges with a type hint one buffer, whatever is asked for.
    single_buffers = (
        2 * flow.path_length(min) - 1 if transport.requirements.single_buffer_channels else None
    )
    for limit in (transport.max_in_flight, single_buffers):
        if limit and options.in_flight > limit:
            yield (f"--in-flight {options.in_flight}: {transport.name} holds {limit} of {flow.name}: give {limit}, or "
                   "another --transport")  # fmt: skip
    if (group := options.group_size) < options.in_flight:
        yield f"--in-flight {options.in_flight}: there is a verification after {group} iterations: give {group} or less"
    if transport.requirements.one_input and any(
        len(flow.edges_to(task.name)) > 1 for task in flow.tasks
    ):
        yield f"{transport.label}: {flow.name} has a task that reads two messages: use another --transport"
    has_steps = flow.has_parameters or any(task.work for task in flow.tasks)
    if has_steps and (options.in_flight > 1 or options.group_size > 1):
        yield f"--in-flight and --check-every: a step of {flow.name} begins after the last one: leave them out"
    if options.message == "packed" and flow.is_flat:
        yield f"--message packed: every message of {flow.name} is one tensor already: leave it out"
    if options.message == "jagged" and not any(
        jagged_message(message).jagged_names for message in flow.messages
    ):
        yield f"--message jagged: no message of {flow.name} has a list of tensors: leave it out"
    if options.as_sent and options.message != "fields":
        yield f"--as-sent: {options.message} messages have what a view shows, and not its storage: leave it out"
    actors = (*flow.actors, *options.add_tasks(flow).timed_names)
    for actor in options.model_times.keys() - set(actors):
        yield f"--model-seconds: there is no actor {actor}: give {', '.join(actors)}"
    for study in studies().values():
        yield from study.find_errors(transport, options, flow)


def count_gpus() -> int:
    """Return the GPUs that a process may use, without importing torch; 0 if torch is built for CPUs."""
    return script_flags.count_gpus() if cuda_version() else 0


def resolve_device(transport: Transport, device: str) -> tuple[str, int]:
    """Return "cpu" or "cuda", and the number of GPUs that may be used; raise UsageError if --device cuda cannot be."""
    gpus = count_gpus() if device != "cpu" else 0
    host_only = transport.requirements.host_memory_only
    if device == "cuda" and (host_only or not gpus):
        reason = f"{transport.name} moves host memory" if host_only and gpus else "no GPU found"
        raise UsageError(f"--device cuda: {reason}. Use --device cpu.")
    return ("cuda", gpus) if gpus and not host_only else ("cpu", 0)


def require_gpus(transport: Transport, gpus: int, actors: int) -> int:
    """Return how many GPUs the transport uses; raise Skipped if there are too few."""
    required = actors if transport.requirements.gpu_per_actor else transport.requirements.gpus
    if gpus < required:
        raise Skipped(
            f"{transport.name} needs {required} GPUs and this machine has {gpus}: use another --transport"
        )
    if gpus and transport.requirements.single_host:
        return 1  # CUDA IPC: all actors use the same GPU
    return required or gpus


def require_modules(transport: Transport, message: str | None) -> None:
    """Raise Skipped if a module that the transport, or the form of the messages, needs is not installed."""
    needed = [form for form, change in FORMS.items() if form == message and change is None]
    for module in (*transport.requirements.modules, *needed):
        if not importlib.util.find_spec(module):
            install = transport.requirements.install or f"pip install {module}"
            raise Skipped(f"{transport.name} needs {module}, which is not installed: {install}")


def require_cluster(address: str) -> None:
    """Raise UsageError if nothing listens at --address. Ray would try for a minute; it finds "auto" itself."""
    try:
        if address != "auto":
            socket.create_connection(
                address.rpartition(":")[::2], timeout=3
            ).close()  # host and port
    except (OSError, ValueError) as error:
        advice = "give ip:port of a running cluster, as `ray start --head` prints it, or auto"
        raise UsageError(f"--address {address}: no answer ({error}): {advice}") from None


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
        limit, usage, prefix = "memory.max", "memory.current", ""
        if controllers:  # version 1, in which sums over a group and its children have a prefix
            limit, usage, prefix = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
        for parent in (
            folder,
            *folder.parents,
        ):  # a limit of any of them counts; in a container, the root has it
            with suppress(OSError, KeyError, ValueError):  # without a limit, it is no number
                statistics = dict(
                    line.split() for line in (parent / "memory.stat").read_text().splitlines()
                )
                file_bytes = sum(
                    int(statistics[f"{prefix}{kind}_file"]) for kind in ("active", "inactive")
                )
                used_bytes = int((parent / usage).read_text()) - file_bytes
                free_bytes.append(max(0, int((parent / limit).read_text()) - used_bytes))
    return min(free_bytes)
