# SPDX-License-Identifier: Apache-2.0
"""Resolve the flags into a plan of one configuration: its flow, processes, devices, memory and record."""

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import psutil

from common import SuiteError
from common.gpus import gpu_of_actor, share_of_gpu
from common.temporary import find_temporary_folder
from dataflow.catalogue.catalogue import Transport, readers_get_views
from dataflow.errors import Skipped, UsageError
from dataflow.flows.catalogue import build_flow, flow_sizes
from dataflow.flows.changing_sizes import change_sizes
from dataflow.flows.flow import DRIVER, Edge, Flow, with_proxy_actor
from dataflow.flows.message import flat_message, jagged_message
from dataflow.plan import validate
from dataflow.plan.options import (
    FORMS,
    MAX_KEPT_WARMUP,
    MAX_WARMUP,
    MIN_KEPT_GROUPS,
    MIN_STORE_BYTES,
    MIN_WARMUP_GROUPS,
    Options,
)
from dataflow.records.schema import Configuration, Layout, Record, Workload, record_edges
from dataflow.study import Added, studies
from dataflow.units import format_bytes

MAX_BESIDE = 100_000  # iterations of the flow of --beside; their times take 1.6 MB
# Per channel of a graph, besides the payload; a tensor's frame is under 1 KiB.
CHANNEL_HEADROOM_BYTES = 64 * 1024
# That a process has of its own besides messages, at least. The unique set size of a second process was 144 MiB after
# `import torch`, and 163 MiB after `import ray, torch` (Ray 2.60, torch 2.13 for CPUs).
PROCESS_BYTES = 140 * 2**20
# Name of the network between the nodes, which tables show, such as 10 Gbit/s.
LINK_VARIABLE = "DATA_FLOW_LINK"
# A message: the edges for which it is sent, and the nodes of sender and reader.
Crossing = tuple[list[Edge], int, int]


def find_crossings(flow: Flow, nodes: Mapping[str, int], once_per_node: bool) -> list[Crossing]:
    """Return the messages of an iteration that cross between nodes, in the order in which they are read.

    `nodes` is the node of each worker. A message crosses once per reader, or once per node that has readers of it.
    """
    crossings: dict[tuple[str, int], Crossing] = {}
    for edge in flow.edges:
        sender, reader = (nodes[flow.actor(task)] for task in (edge.source, edge.reader))
        if sender != reader:
            key = (edge.source if once_per_node else str(edge), reader)
            crossings.setdefault(key, ([], sender, reader))[0].append(edge)
    return [*crossings.values()]


def bytes_by_link(crossings: Sequence[Crossing]) -> Counter[tuple[int, int]]:
    """Return the bytes per iteration from one node to another, by sender and reader."""
    total = Counter[tuple[int, int]]()
    for edges, sender, reader in crossings:
        total[sender, reader] += edges[0].bytes
    return total


@dataclass(frozen=True)
class Plan:
    transport: Transport
    options: Options
    requested_flow: Flow  # as its user draws it
    device: str = "cpu"
    gpus: int = 0  # for all actors together
    store_bytes: int = 0  # of a private cluster's object store
    run_folder: Path = Path()  # for files that are removed when the run ends
    shared_folder: Path = Path()  # the same in /dev/shm
    checkout: Path | None = None  # another checkout of this project, whose code is measured
    suite: str = ""
    table: str = "configurations"
    beside: "Plan | None" = None  # of another flow, which runs while this one is measured

    @cached_property
    def task_flow(self) -> Flow:
        """Return the tasks that run: those of the flow, and the suite's own proxy actor or dataset."""
        return (
            with_proxy_actor(self.added.flow)
            if self.transport.requirements.proxy_actor
            else self.added.flow
        )

    @cached_property
    def added(self) -> Added:
        flow = self.requested_flow
        options = self.options
        if options.message == "jagged":
            flow = flow.with_messages(jagged_message)
        if options.changing_sizes:
            flow = change_sizes(flow, options.changing_sizes, options.iterations)
        return options.add_tasks(flow)

    @cached_property
    def sent_flow(self) -> Flow:
        if self.options.message == "packed":
            return self.task_flow.with_messages(lambda message: flat_message(message.packed_bytes))
        change = FORMS.get(self.options.message or "")
        return change(self.task_flow) if change else self.task_flow

    @cached_property
    def largest_flow(self) -> Flow:
        """Return the tasks that run, with each message at its largest size: memory must hold those."""
        return self.task_flow.with_messages(lambda message: message.largest)

    def relative_bytes(self, numbers: range) -> float:
        """Return the bytes of these iterations, divided by those of as many iterations of the mean size."""
        flow = self.task_flow
        sent_bytes = 0
        for number in numbers:
            sent_bytes += sum(edge.message.at(number).bytes for edge in flow.edges)
        return sent_bytes / (len(numbers) * flow.bytes_per_iteration)

    @cached_property
    def parts(self) -> dict[str, str]:
        """Return the parts of studies that the actors have, by study."""
        return {
            name: study.part
            for name, study in studies().items()
            if study.part and study.is_used(self)
        }

    def crossings(self, worker_nodes: Mapping[str, int]) -> list[Crossing]:
        """Return the messages between nodes if each worker runs on the given node."""
        return find_crossings(self.sent_flow, worker_nodes, self.transport.once_per_node)

    @property
    def worker_names(self) -> tuple[str, ...]:
        """Return the names of the workers: the driver and the actors, which send and read the messages of a run."""
        return (DRIVER, *self.task_flow.actors)

    @property
    def expects_views(self) -> bool:
        """Whether readers must end with views. Views of host memory are copied to a GPU."""
        is_shared = self.device == "cpu" or self.transport.requirements.single_host
        gives_views = readers_get_views(self.transport, self.options.configuration_flags)
        return is_shared and gives_views and not FORMS.get(self.options.message or "")

    @property
    def max_warmup(self) -> int:
        """Return the largest number of iterations between the first one and the timed ones."""
        options = self.options
        if options.warmup is not None:
            return options.warmup
        if options.retain_memory:
            return max(MAX_KEPT_WARMUP, MIN_KEPT_GROUPS * options.in_flight)
        return max(MAX_WARMUP, MIN_WARMUP_GROUPS * options.in_flight)

    @property
    def total_iterations(self) -> int:
        """Return the largest possible number."""
        return 1 + self.max_warmup + self.options.iterations

    @property
    def stored_iterations(self) -> int:
        """Return how many iterations the object store holds: those in flight, and the one before, in queues."""
        if self.transport.gives_views and self.transport.stores == "channels":
            # Readers hold as many views until verification. With fewer buffers, a view blocks the writer forever.
            return 2 * self.options.in_flight
        return self.options.in_flight + 1

    @property
    def needed_store_bytes(self) -> int:
        """Return the bytes that are in the object store at the same time."""
        flow = self.largest_flow
        if not self.transport.stores:
            return 0
        # Readers may get messages by value, which are then stored again.
        added_bytes = sum(edge.message.serialised_bytes for edge in flow.edges)
        if self.transport.stores == "channels":  # they are objects of the store, made once
            added_bytes = (len(flow.tasks) + 1) * CHANNEL_HEADROOM_BYTES
        return self.stored_iterations * (
            sum(message.serialised_bytes for message in flow.messages) + added_bytes
        )

    @property
    def resident_bytes(self) -> int:
        """Return the bytes of a run for messages: pools, inputs of readers, a trainer's samples, and the store."""
        flow = self.largest_flow
        in_flight = self.options.in_flight
        copies = 2 if self.options.copy_in else 1  # the producers' own, and those in shared memory
        is_in_place = flow.has_parameters and not self.transport.requirements.shared_memory
        slots = 1 if is_in_place else flow.slots(in_flight)
        # Readers hold the inputs of the last iterations while the next one arrives.
        pools = slots * copies * flow.sent_bytes
        inputs = (in_flight + 1) * flow.bytes_per_iteration
        return pools + inputs + self.needed_store_bytes + self.added.memory_bytes

    @property
    def processes(self) -> int:
        """Return how many processes hold messages: the driver, and those of the actors and of studies."""
        if self.transport.requirements.single_process:
            return 1
        added = self.added.processes + self.added.cpu_processes
        return 1 + len(self.task_flow.actors) + added

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of memory of a run, with what its processes need besides messages."""
        return self.resident_bytes + self.processes * PROCESS_BYTES

    @property
    def gpus_per_actor(self) -> float:
        """Return the `num_gpus` of each actor: 1 or an equal fraction. Ray never splits an actor over several GPUs."""
        if self.gpus == 0:
            return 0
        processes = len(self.task_flow.actors) + self.added.processes
        return share_of_gpu(processes, self.gpus)

    def gpu_of(self, actor: str) -> str:
        """Return the torch device of an actor's tensors, numbered as in a process that sees every GPU."""
        if self.device == "cpu":
            return "cpu"
        index = 0 if actor == DRIVER else self.task_flow.actors.index(actor)
        return gpu_of_actor(index, self.gpus)

    @cached_property
    def workload(self) -> Workload:
        options = self.options
        flow = self.requested_flow
        sizes = flow_sizes(options.flow, None if options.fields else options.message)
        sizes |= {name: value for name, value in options.sizes.items() if value is not None}
        message = "flat" if flow.is_flat else options.message or "fields"
        return Workload(options.arguments["flow"], message, sizes, record_edges(flow))  # type: ignore[arg-type]

    @cached_property
    def configuration(self) -> Configuration:
        options = self.options
        transport = self.transport
        flags = self.options.configuration_flags
        placement = str(options.placement)
        link = os.environ.get(LINK_VARIABLE, "")
        place = placement if "=" in placement else ""
        layout = Layout("spread" if place else placement, bool(options.address), place, link)  # type: ignore[arg-type]
        return Configuration(transport.runtime.name, transport.name, flags, self.device, layout)  # type: ignore[arg-type]

    def new_record(self) -> Record:
        return Record(
            suite=self.suite,
            table=self.table,
            workload=self.workload,
            configuration=self.configuration,
            traced=self.options.trace,
            arguments=self.options.arguments,
        )


@dataclass(frozen=True)
class Need:
    """Memory that a run needs, and what to do if it is not free."""

    name: str
    needed_bytes: int
    free_bytes: int
    advice: str


def require_folders() -> None:
    """Raise UsageError if a run cannot write temporary files or shared memory."""
    try:
        find_temporary_folder()
    except SuiteError as error:
        raise UsageError(str(error)) from None
    if not os.access("/dev/shm", os.W_OK):
        raise UsageError(
            "/dev/shm is missing or cannot be written, and a run needs it: mount a tmpfs there"
        )


def require_memory(plan: Plan) -> int:
    """Return the bytes of a private cluster's object store; 0 without Ray.

    Raise UsageError if too little memory is free, or if temporary files or /dev/shm cannot be written.
    """
    require_folders()
    shared_bytes = psutil.disk_usage("/dev/shm").free
    memory_bytes = psutil.virtual_memory().available
    memory_name = "memory"
    limit_bytes = validate.limited_memory()
    if limit_bytes < memory_bytes:
        memory_bytes = int(limit_bytes)
        memory_name = "memory under the limit of this container (cgroup)"
    store_bytes = choose_store_bytes(plan, memory_bytes, shared_bytes)
    smaller = "send smaller messages (--help sizes)"
    fewer_processes = ""
    if plan.resident_bytes < plan.memory_bytes / 2:
        fewer_processes = f"start fewer than {plan.processes} processes"
    enlarge = "enlarge it (docker run --shm-size), or"
    raise_store = f"{smaller}, or raise --object-store-bytes"
    needs = [
        Need(
            "/dev/shm for messages", shared_pool_bytes(plan), shared_bytes, f"{enlarge} {smaller}"
        ),
        Need(memory_name, plan.memory_bytes, memory_bytes, fewer_processes or smaller),
        Need("object store", plan.needed_store_bytes, store_bytes, raise_store),
    ]
    if store_bytes > shared_bytes:
        advice = f"{enlarge} lower --object-store-bytes"
        raise_for_memory(
            plan, Need("/dev/shm for the object store", store_bytes, shared_bytes, advice)
        )
    share = min(need.free_bytes / need.needed_bytes for need in needs if need.needed_bytes)
    for need in needs:
        if need.needed_bytes > need.free_bytes:
            raise_for_memory(plan, need, more_advice=suggest_scale(plan, share))
    return store_bytes


def choose_store_bytes(plan: Plan, memory_bytes: int, shared_bytes: int) -> int:
    """Return the size of the object store of a private cluster; 0 without Ray."""
    options = plan.options
    if not plan.transport.runtime.uses_ray:
        return 0
    if options.object_store_bytes:
        return options.object_store_bytes
    default_bytes = min(0.3 * memory_bytes, 0.95 * shared_bytes)  # 30 % is Ray's own default
    if options.preallocate_store:
        default_bytes = 2 * plan.needed_store_bytes
    return max(MIN_STORE_BYTES, int(default_bytes))


def shared_pool_bytes(plan: Plan) -> int:
    """Return the bytes of the payloads that a transport keeps in shared memory."""
    if not plan.transport.requirements.shared_memory:
        return 0
    flow = plan.task_flow
    return flow.slots(plan.options.in_flight) * flow.sent_bytes


def suggest_scale(plan: Plan, share: float) -> str:
    """Return a part of a message: the --model-scale that needs at most this share of the memory; "" for other flows."""
    options = plan.options
    # Not all memory grows with the model.
    scale = (options.model_scale or 1.0) * share * 0.8
    if scale <= 0 or "model_scale" not in flow_sizes(options.flow, options.message):
        return ""
    unit = 10.0 ** math.floor(math.log10(scale))
    rounded = math.floor(scale / unit) * unit
    return f", or a part of the model with --model-scale {rounded:.1g}"


def raise_for_memory(plan: Plan, need: Need, more_advice: str = "") -> NoReturn:
    """Raise UsageError for memory that is not free."""
    needed = format_bytes(need.needed_bytes)
    free = format_bytes(need.free_bytes)
    raise UsageError(
        f"{plan.transport.name} needs {needed} of {need.name} with {plan.task_flow.name}, and {free} "
        f"are free: {need.advice}{more_advice}"
    )


def resolve_plan(
    transport: Transport, options: Options, suite: str = "", table: str = ""
) -> tuple[Plan, Skipped | None]:
    """Return the plan, and the reason to skip it: a requirement that this machine does not meet.

    It may then have no GPUs and no bytes of the object store. The flow of --beside is planned too, and can be why.
    Raise UsageError for bad flags, a cluster that does not answer and, outside of a suite, too little memory.
    """
    try:
        flow = build_flow(options.flow, options.sizes, options.message)
        for error in validate.find_errors(transport, options, flow):
            raise UsageError(error)
    except ValueError as error:
        raise UsageError(str(error)) from None
    device, gpus = validate.resolve_device(transport, options)
    plan = Plan(transport, options, flow, device, suite=suite, table=table or options.table)
    try:
        gpus = validate.require_gpus(transport, gpus, len(plan.task_flow.actors))
        validate.require_processor(transport)
        validate.require_modules(transport, options.message)
        validate.require_variables(options)
    except Skipped as reason:
        return plan, reason
    if options.address:
        validate.require_cluster(options.address)
    try:
        store_bytes = require_memory(plan)
    except UsageError as error:
        if not suite:
            raise
        return plan, Skipped(str(error))  # the other configurations of the suite may fit
    plan = replace(plan, gpus=gpus, store_bytes=store_bytes)
    beside_plan = None
    skipped = None
    if options.beside:
        try:
            beside_plan, skipped = resolve_plan(transport, options_of_beside(options), suite)
        except UsageError as error:
            raise UsageError(f"--beside {options.beside}: {error}") from None
    return replace(plan, beside=beside_plan), skipped


def options_of_beside(options: Options) -> Options:
    """Return the options of the flow of --beside, not yet checked, from options that have --beside.

    It goes on until it is ended, and verifies each iteration, or with --episode each episode.
    """
    unset: dict[str, Any] = dict.fromkeys(
        [*options.sizes, "beside", "message", "check_every", "model_seconds", "inject"]
    )
    endless: dict[str, Any] = {
        "flow": options.beside,
        "iterations": MAX_BESIDE,
        "warmup": 0,
        "in_flight": 1,
        "trace": False,
    }
    values = options.values | unset | endless
    values["placement"] = None
    return Options.of(values)
