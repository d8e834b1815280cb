# SPDX-License-Identifier: Apache-2.0
"""Check that flags fit each other, and that this machine has what a configuration needs.

Every rule prevents a hang, a crash, a wrong number, or a record of something that did not happen.
"""

import importlib.util
import math
import os
import platform
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from common.gpus import count_gpus, cuda_version, default_device, gpus_in_words
from dataflow.catalogue.catalogue import TRANSPORTS, Transport, readers_get_views
from dataflow.errors import Skipped, UsageError
from dataflow.flows.changing_sizes import change_sizes
from dataflow.flows.flow import DRIVER, Flow
from dataflow.flows.message import jagged_message
from dataflow.plan.environment import (
    FLAGS_WITH_VARIABLES,
    find_environment_errors,
    require_effect,
)
from dataflow.plan.options import FORMS, RESULTS, Options
from dataflow.study import studies

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CGROUPS = Path("/sys/fs/cgroup")
MY_CGROUPS = Path("/proc/self/cgroup")
LIST_SHOWS_ALL = " ('dataflow list' shows all)"
CHOOSE_ANOTHER = f"choose another configuration{LIST_SHOWS_ALL}"


def find_errors(transport: Transport, options: Options, flow: Flow) -> Iterator[str]:
    """Yield one line for each rule that is broken: what is wrong, and what to do.

    Raise ValueError if a flag with several values, such as --placement or --model-seconds, cannot be read.
    """
    yield from find_transport_errors(transport, options, flow)
    yield from find_machine_errors(transport, options)
    yield from find_variable_errors(options)
    yield from find_placement_errors(transport, options, flow)
    yield from find_in_flight_errors(transport, options, flow)
    yield from find_message_errors(options, flow)
    if options.changing_sizes:
        yield from find_changing_errors(transport, options, flow)
    added = options.add_tasks(flow)
    actors = (*flow.actors, *added.timed_names)
    known = ", ".join(actors)
    for actor in options.model_times:
        if actor not in actors:
            yield f"--model-seconds: there is no actor {actor}: give {known}"
    for study in studies().values():
        yield from study.find_errors(transport, options, flow)


def find_fetch_errors(transport: Transport, options: Options) -> Iterator[str]:
    """Yield the errors of flags for the memory in which readers receive, which not all transports choose."""
    label = transport.label
    advice = f"readers of {label} do not fetch references: leave it out"
    if options.reuse_buffers and not transport.can_receive_in_place:
        yield f"--reuse-buffers: {advice}"
    if options.one_by_one and not transport.can_receive_in_place:
        yield f"--one-by-one: {advice}"
    if options.keep:
        yield from find_keep_errors(transport, options)


def find_keep_errors(transport: Transport, options: Options) -> Iterator[str]:
    """Yield an error if --keep changes nothing."""
    label = transport.label
    if transport.can_keep or options.copy_out:
        return
    if readers_get_views(transport, options.configuration_flags):
        yield f"--keep: readers of {label} get views: give --copy-out too, or leave it out"
    elif transport.reuses_buffers or options.reuse_buffers:
        yield f"--keep: readers of {label} have no choice of what they may keep: leave it out"
    else:
        yield f"--keep: readers of {label} may keep what they get without it: leave it out"


def find_contiguous_errors(label: str, options: Options, flow: Flow) -> Iterator[str]:
    """Yield the errors of messages that are more than contiguous tensors in memory that does not change."""
    if options.as_sent:
        yield f"--as-sent: {label} carries contiguous tensors only: leave it out"
    elif options.message != "packed" and has_python_fields(flow):
        yield f"{label} carries tensors only: give --message packed"
    if options.message in FORMS:
        yield f"--message {options.message}: {label} sends only memory that it has registered before: leave it out"


def has_python_fields(flow: Flow) -> bool:
    """Return whether a message has strings or lists of numbers."""
    fields = chain.from_iterable(message.fields for message in flow.messages)
    return any(field.is_python for field in fields)


def find_transport_errors(transport: Transport, options: Options, flow: Flow) -> Iterator[str]:
    """Yield the errors of flags, or of a flow, that do not fit the transport."""
    label = transport.label
    runtime = transport.runtime
    requirements = transport.requirements
    if options.zero_copy and not transport.can_map_tensors:
        yield f"--zero-copy: {label} cannot be measured with it: use store refs --zero-copy, or leave it out"
    is_packed = options.message == "packed"
    writes_in_place = requirements.shared_memory and not is_packed
    if options.copy_in and not writes_in_place:
        yield (
            f"--copy-in: {label} does not send what its producers write into shared memory: "
            "leave it out"
        )
    yield from find_fetch_errors(transport, options)
    if transport.carries_contiguous_only:
        yield from find_contiguous_errors(label, options, flow)
    is_registered = options.registration != "once"
    if is_registered and not transport.registers_memory:
        yield f"--registration: {label} has no choice of when memory is registered: leave it out"
    has_private_store = runtime.uses_ray and not options.address
    if options.preallocate_store and not has_private_store:
        yield "--preallocate-store is for the object store of a private Ray cluster: leave it out"
    if options.ray_defaults and not has_private_store:
        yield "--ray-defaults is for a private Ray cluster: leave it out"
    gives_views = transport.gives_views or options.zero_copy
    can_copy = gives_views or flow.has_parameters
    if options.copy_out and not can_copy:
        yield f"--copy-out: readers of {label} own a copy already: leave it out"
    is_between_actors = [DRIVER not in (edge.source, edge.reader) for edge in flow.edges]
    if requirements.edge_between_actors and not any(is_between_actors):
        yield (
            f"{label}: {flow.name} has no message between two actors, and {transport.name} carries no other: "
            "give another --flow, such as chain with --actors 2"
        )
    inputs = [len(flow.edges_to(task.name)) for task in flow.tasks]
    if requirements.one_input and max(inputs) > 1:
        yield f"{label}: {flow.name} has a task that reads two messages: {CHOOSE_ANOTHER}"


def find_variable_errors(options: Options) -> Iterator[str]:
    """Yield the errors of --env; require_variables finds what this machine would pass over."""
    flags = [name for name in FLAGS_WITH_VARIABLES if getattr(options, name)]
    yield from find_environment_errors(options.env, bool(options.address), flags)


def has_huge_pages() -> bool:
    """Return whether the kernel gives transparent huge pages to a process that asks for them."""
    return HUGE_PAGES.exists() and "[never]" not in HUGE_PAGES.read_text()


def find_machine_errors(transport: Transport, options: Options) -> Iterator[str]:
    """Yield the errors of flags that this machine cannot carry out."""
    if options.huge_pages and not has_huge_pages():
        yield f"--huge-pages: this machine does not give any: write madvise into {HUGE_PAGES}"
    undecodable = re.search("[\udc80-\udcff]", str(RESULTS))  # bytes that Python could not decode
    if transport.runtime.uses_ray and undecodable:
        encoding = sys.getfilesystemencoding()
        yield (
            f"{transport.label}: Ray cannot start in a folder whose name is not {encoding}: "
            "set PYTHONUTF8=1"
        )
    cores = len(os.sched_getaffinity(0))
    if options.threads > cores:
        yield f"--threads {options.threads}: there are {cores} cores: give {cores} or less"


def find_placement_errors(transport: Transport, options: Options, flow: Flow) -> Iterator[str]:
    """Yield the errors of --address and --placement; raise ValueError if ACTOR=NODE,... cannot be read."""
    if options.address and not transport.can_cross_nodes:
        yield f"--address: {transport.label} runs on one machine, without a cluster: leave it out"
    placement = options.placement
    if placement != "pack" and not options.address:
        yield (
            "--placement: a private cluster has one node: give --address too, or use dataflow nodes"
        )
    nodes = options.nodes_of_actors
    is_named = placement in ("pack", "spread")
    if not is_named and not nodes:
        yield f"--placement {placement}: give pack, spread or ACTOR=NODE,..."
    known = ", ".join(flow.actors)
    for actor, node in nodes.items():
        is_known = actor in flow.actors
        if not is_known or node < 0:
            yield f"--placement {actor}={node}: give a node from 0 for one of {known}"


def find_in_flight_errors(transport: Transport, options: Options, flow: Flow) -> Iterator[str]:
    """Yield the errors of flags with which iterations would wait for each other forever, or overlap a step."""
    in_flight = options.in_flight
    limits = []
    if transport.max_in_flight:
        limits.append(transport.max_in_flight)
    if transport.requirements.single_buffer_channels:
        # One in each channel and one in each actor. Ray gives edges with a type hint one buffer, whatever is asked for.
        shortest_path = flow.path_length(min)
        channels = shortest_path
        if transport.requirements.senders_wait:
            channels = 2  # those of the driver: others hold nothing that its sender does not hold
        limits.append(channels + shortest_path - 1)
    for limit in limits:
        if in_flight > limit:
            yield (
                f"--in-flight {in_flight}: {transport.name} holds {limit} of {flow.name}: "
                f"give {limit}, or {CHOOSE_ANOTHER}"
            )
    group = options.group_size
    if group < in_flight:
        yield (
            f"--in-flight {in_flight}: there is a verification after {group} iterations: "
            f"give {group} or less"
        )
    has_work = any(task.work for task in flow.tasks)
    has_steps = has_work or flow.has_parameters
    has_groups = in_flight > 1 or group > 1
    if has_steps and has_groups:
        yield (
            f"--in-flight and --check-every: a step of {flow.name} begins after the last one: "
            "leave them out"
        )


def find_message_errors(options: Options, flow: Flow) -> Iterator[str]:
    """Yield an error for each --message or --as-sent that has no effect on this flow."""
    form = options.message
    if form == "packed" and flow.is_flat:
        yield f"--message packed: every message of {flow.name} is one tensor already: leave it out"
    if form == "jagged":
        jagged = [jagged_message(message) for message in flow.messages]
        if not any(message.jagged_names for message in jagged):
            yield f"--message jagged: no message of {flow.name} has a list of tensors: leave it out"
    if options.as_sent and form != "fields":
        yield (
            f"--as-sent: {form} messages have what a view shows, and not its storage: leave it out"
        )


def find_changing_errors(transport: Transport, options: Options, flow: Flow) -> Iterator[str]:
    """Yield the errors of --changing-sizes: what needs to know the size of a message before it is sent."""
    flag = "--changing-sizes"
    if not transport.carries_changing_sizes:
        others = [label for label, other in TRANSPORTS.items() if other.carries_changing_sizes]
        yield f"{flag}: {transport.label} sends messages of one size: use {', '.join(others)}"
    if options.zero_copy or options.copy_out:
        yield f"{flag}: readers need a copy that the transport makes: leave --zero-copy and --copy-out out"
    if options.message in FORMS:
        yield f"{flag}: {options.message} messages have one size: leave --message out"
    try:
        change_sizes(flow, options.changing_sizes or 0, options.iterations)
    except ValueError as error:
        yield str(error)


def resolve_device(transport: Transport, options: Options) -> tuple[str, int]:
    """Return "cpu" or "cuda", and the number of GPUs that may be used; raise UsageError if --device cuda cannot be."""
    device = options.device
    gpus = count_gpus() if device != "cpu" else 0
    moves_gpu_memory = not transport.requirements.host_memory_only
    if moves_gpu_memory and default_device(gpus) == "cuda":
        if options.changing_sizes:
            raise UsageError("--changing-sizes: tensors of GPUs keep their size: give --device cpu")
        return "cuda", gpus
    if device == "cuda" and gpus:
        raise UsageError(f"--device cuda: {transport.name} moves host memory. Use --device cpu.")
    if device == "cuda":
        needs_gpu = transport.requirements.gpu_per_actor or transport.requirements.gpus > 0
        if needs_gpu:
            raise UsageError(
                f"--device cuda: no GPU found, and {transport.name} needs one: {CHOOSE_ANOTHER}"
            )
        raise UsageError("--device cuda: no GPU found. Use --device cpu.")
    return "cpu", 0


def require_gpus(transport: Transport, gpus: int, actors: int) -> int:
    """Return how many GPUs the transport uses; raise Skipped if there are too few."""
    required = actors if transport.requirements.gpu_per_actor else transport.requirements.gpus
    if gpus < required:
        needed = gpus_in_words(required)
        raise Skipped(
            f"{transport.name} needs {needed} and this machine has {gpus}: {CHOOSE_ANOTHER}"
        )
    if gpus and transport.requirements.single_host:
        return 1  # CUDA IPC: all actors use the same GPU
    return required or gpus


def require_processor(transport: Transport) -> None:
    """Raise Skipped on another processor than the one that the transport needs.

    Readers of a shared ring see the bytes of a message before its number, because x86 makes writes visible in order.
    """
    needed = transport.requirements.processor
    machine = platform.machine()
    if needed and machine != needed:
        raise Skipped(
            f"{transport.name} relies on the memory order of {needed} and this machine is {machine}: "
            f"{CHOOSE_ANOTHER}"
        )


def require_modules(transport: Transport, message: str | None) -> None:
    """Raise Skipped if a module that the transport, or the form of the messages, needs is not installed."""
    needed = [*transport.requirements.modules]
    if message in FORMS and FORMS[message] is None:  # the form is made by the package of its name
        needed.append(message)
    cuda = cuda_version()
    # The package nixl imports the one of torch's CUDA version, and accepts no other.
    if cuda and "nixl" in needed:
        major = cuda.partition(".")[0]
        needed.append(f"nixl_cu{major}")
    for module in needed:
        if importlib.util.find_spec(module):
            continue
        install = transport.requirements.install or f"pip install {module}"
        raise Skipped(f"{transport.name} needs {module}, which is not installed: {install}")


def require_variables(options: Options) -> None:
    """Raise Skipped if this machine would pass over a variable of --env."""
    require_effect(options.env, has_huge_pages())


def require_cluster(address: str) -> None:
    """Raise UsageError if nothing listens at --address. Ray would try for a minute; it finds "auto" itself."""
    try:
        if address != "auto":
            # The address is a host and a port.
            socket.create_connection(address.rpartition(":")[::2], timeout=3).close()
    except (OSError, ValueError) as error:
        advice = "give ip:port of a running cluster, as `ray start --head` prints it, or auto"
        raise UsageError(f"--address {address}: no answer ({error}): {advice}") from None


def limited_memory() -> float:
    """Return the bytes of memory that a container's limit (cgroup) leaves to new processes; infinity without a limit.

    Pages of files count as free, because the kernel drops them first.
    """
    free_bytes = math.inf
    for line in MY_CGROUPS.read_text().splitlines() if MY_CGROUPS.exists() else []:
        _, controllers, group = line.split(":", 2)  # version 2 names no controllers
        if controllers and "memory" not in controllers.split(","):
            continue
        folder = CGROUPS / ("memory" if controllers else "") / group.lstrip("/")
        # A limit of any of the parents counts too; in a container, the root has it.
        for parent in (folder, *folder.parents):
            with suppress(OSError, KeyError, ValueError):  # without a limit, it is no number
                free_bytes = min(free_bytes, free_memory(parent, is_version_1=bool(controllers)))
    return free_bytes


def free_memory(folder: Path, is_version_1: bool) -> int:
    """Return the bytes that the limit of one control group leaves.

    Raise OSError or ValueError if it has no limit, and KeyError if its statistics lack a number.
    """
    limit = "memory.max"
    usage = "memory.current"
    prefix = ""
    if is_version_1:
        limit = "memory.limit_in_bytes"
        usage = "memory.usage_in_bytes"
        prefix = "total_"  # of sums over a group and its children
    statistics: dict[str, int] = {}
    for line in (folder / "memory.stat").read_text().splitlines():
        name, value = line.split()
        statistics[name] = int(value)
    limit_bytes = int((folder / limit).read_text())
    used_bytes = int((folder / usage).read_text())
    active_bytes = statistics[f"{prefix}active_file"]
    inactive_bytes = statistics[f"{prefix}inactive_file"]
    file_bytes = active_bytes + inactive_bytes
    return max(0, limit_bytes - used_bytes + file_bytes)
