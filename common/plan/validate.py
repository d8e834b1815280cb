"""Reject flags that do not fit each other, before anything starts.

Every rule prevents a hang, a crash, a wrong number, or a record that names something that did not happen.
"""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from common.errors import UsageError
from common.flows.catalogue import flag_name
from common.flows.flow import DRIVER, Flow
from common.plan.options import Options
from common.transports.catalogue import Transport

MAX_SAMPLES = 100_000  # per message that a trainer cuts into samples
MAX_PROCESSES = 64  # per actor
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
TRAINER_FLAGS = ("train_micro_batch", "train_global_batch", "data_parallel", "trainers", "relay_episodes")


def validate(transport: Transport, options: Options, flow: Flow) -> None:
    """Raise UsageError for the first rule that is broken: one line that says what to do."""
    rules = chain(transport_errors(transport, options), flow_errors(transport, options, flow))
    for error in chain(rules, chatlearn_errors(options, flow) if options.chatlearn else ()):
        raise UsageError(error)


def transport_errors(transport: Transport, options: Options) -> Iterator[str]:
    """Check the flags that do not work with every transport: the name of the configuration has them."""
    label, cores, uses_ray = transport.label, len(os.sched_getaffinity(0)), transport.runtime.uses_ray
    spread = options.placement == "spread"
    if options.zero_copy and (transport.runtime.name != "store" or transport.name in ("bytes", "numpy")):
        yield f"--zero-copy: {label} puts no tensors into the object store: leave it out"
    if options.copy_out and not (transport.gives_views or options.zero_copy):
        yield f"--copy-out: readers of {label} own a copy already: leave it out"
    if options.reuse_buffers and label != "graph shm":
        yield f"--reuse-buffers is a flag of graph shm and not of {label}: leave it out"
    if options.huge_pages and not (HUGE_PAGES.exists() and "[never]" not in HUGE_PAGES.read_text()):
        yield f"--huge-pages: this machine does not give any: write madvise into {HUGE_PAGES}"
    if options.threads > cores:
        yield f"--threads {options.threads}: there are {cores} cores: give {cores} or less"
    if options.address and (transport.requirements.single_host or not uses_ray):
        yield f"--address: {label} runs on one machine, without a cluster: leave it out"
    if (spread or options.object_store_bytes) and not uses_ray:
        yield f"--placement and --object-store-bytes are flags of Ray, and {label} does not use Ray: leave them out"
    if options.trace and (options.runs > 1 or options.sweep):
        yield "--trace records one run, and --runs or --sweep asks for several: leave one of them out"
    if options.trace and (options.address or spread):
        yield "--trace needs one clock: leave --address and --placement spread out"
    if options.trace and options.trace == options.output:
        yield f"--trace and --output are the same file {options.trace}: give two names"


def flow_errors(transport: Transport, options: Options, flow: Flow) -> Iterator[str]:
    """Check that the flow has the fields and actors that flags need, and that it does not block."""
    # One in each channel and one in each actor. Ray gives edges with a type hint one buffer, whatever is asked for.
    single_buffers = 2 * flow.path_length(min) - 1 if transport.requirements.single_buffer_channels else None
    for limit in (transport.max_in_flight, single_buffers):
        if limit and options.in_flight > limit:
            yield f"--in-flight {options.in_flight}: {transport.name} holds {limit} of {flow.name}: give {limit}"
    if options.group_size < options.in_flight:
        yield f"--check-every or --episode: give at least --in-flight, which is {options.in_flight}"
    if options.message == "packed" and flow.is_flat:
        yield f"--message packed: every message of {flow.name} is one tensor already: leave it out"
    if options.as_sent and options.message == "packed":
        yield "--as-sent: packing copies what a view shows, and not its storage: leave it out"
    if options.sink == "trainer":
        results = [flow.message(name) for name in flow.returns]
        counts = {count for message in results for count in message.sample_counts}
        if len(counts) > 1 or max(counts) > MAX_SAMPLES or any(message.is_flat for message in results):
            yield (f"--sink trainer: the results of {flow.name} are not fields with one entry per sample: give "
                   "--message fields, or one of ChatLearn's flows (--list-flows)")  # fmt: skip
    actors = [*flow.actors, *(["trainer"] if options.sink == "trainer" else [])]
    for actor in options.model_times:
        if actor not in actors:
            yield f"--model-seconds: there is no actor {actor}: give {', '.join(actors)}"
    if options.inject and options.inject.task not in (DRIVER, *(task.name for task in flow.tasks)):
        yield f"--inject: {flow.name} has no task {options.inject.task}: give another one"
    for name in TRAINER_FLAGS:
        if name in options.configuration_flags and options.sink != "trainer":
            yield f"{flag_name(name)} is a flag of the trainer: give --sink trainer too"


def chatlearn_errors(options: Options, flow: Flow) -> Iterator[str]:
    """Check the flags of ChatLearn's driver loop."""
    chatlearn, group = options.chatlearn, options.group_size
    if chatlearn.episode and options.check_every:
        yield "--check-every: every episode of --episode ends with a full verification: leave it out"
    if options.in_flight < group and (options.in_flight > 1 or options.sink == "trainer"):
        yield f"--in-flight {options.in_flight}: ChatLearn sends a whole episode at once: give --in-flight {group}"
    for name in ("replicas", "ranks"):
        for model in chatlearn.counts(name):
            if model not in flow.actors:
                yield f"--{name}: there is no model {model}: give {', '.join(flow.actors)}"
    for model in flow.actors:
        replicas, ranks = options.process_counts(model)
        if min(replicas, ranks) < 1 or replicas * ranks > MAX_PROCESSES:
            yield f"--replicas and --ranks: {model} has {replicas * ranks} processes: give 1 to {MAX_PROCESSES}"
    needed = group * chatlearn.relay_episodes  # the queue operations of a whole episode are recorded
    if options.iterations < needed:
        yield f"--iterations {options.iterations}: give {needed} (--episode times --relay-episodes) or more"
    step = options.train_micro_batch * chatlearn.data_parallel
    if options.sink == "trainer" and chatlearn.train_global_batch % step:
        yield (f"--train-global-batch {chatlearn.train_global_batch}: give a multiple of {step} (--train-micro-batch "
               "times --data-parallel)")  # fmt: skip
