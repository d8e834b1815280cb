# SPDX-License-Identifier: Apache-2.0
"""Check that the flags of ChatLearn fit each other, the transport and the flow."""

from collections.abc import Iterator
from typing import Any

from dataflow.flows.flow import Flow
from dataflow.studies.chatlearn.flags import (
    ChatLearnFlags,
    chatlearn_flags,
    is_chatlearns_transport,
)
from dataflow.studies.chatlearn.layout import MAX_PROCESSES, parse_counts

FORMS_OF_SAMPLES = ("fields", "packed", None)  # of --message; None: it is not given
MAX_SAMPLES = 100_000  # per message that a trainer cuts into samples
TRAINER_FLAGS = (
    "train_micro_batch",
    "train_global_batch",
    "trainers",
    "data_parallel",
    "relay_episodes",
)


def find_errors(transport: Any, options: Any, flow: Flow) -> Iterator[str]:
    """Yield one line for each rule that is broken: what is wrong, and what to do.

    Raise ValueError if --replicas or --ranks cannot be read.
    """
    given = options.configuration_flags
    names = [name for name in ChatLearnFlags.__dataclass_fields__ if name in given]
    if not is_chatlearns_transport(transport):
        for name in names:
            yield f"{flag_name(name)} is a flag of 'store ref-queue': choose this configuration, or leave it out"
        return
    yield from find_episode_errors(options)
    yield from find_layout_errors(options, flow)
    if chatlearn_flags(options).sink == "trainer":
        yield from find_trainer_errors(options, flow)
        return
    for name in names:
        if name in TRAINER_FLAGS:
            yield f"{flag_name(name)} is a flag of the trainer: give --sink trainer too"


def flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def find_episode_errors(options: Any) -> Iterator[str]:
    """Yield the errors of --episode, and of flags whose numbers must fit it."""
    flags = chatlearn_flags(options)
    group = options.group_size
    if flags.episode and options.check_every:
        yield "--check-every: every episode of --episode ends with a full verification: leave it out"
    sends_several = options.in_flight > 1 or flags.sink == "trainer"
    if options.in_flight < group and sends_several:
        yield f"--in-flight {options.in_flight}: ChatLearn sends a whole episode at once: give --in-flight {group}"
    if options.iterations < group:
        yield f"--iterations {options.iterations}: give {group} (--episode) or more"


def find_layout_errors(options: Any, flow: Flow) -> Iterator[str]:
    """Yield an error for each model that the flow does not have, and for each that has too many processes.

    Raise ValueError if --replicas or --ranks cannot be read, or has a number that is not from 1 to MAX_PROCESSES.
    """
    flags = chatlearn_flags(options)
    for name, text in (("replicas", flags.replicas), ("ranks", flags.ranks)):
        counts = parse_counts(flag_name(name), text)
        for model in counts.keys() - set(flow.actors):
            models = ", ".join(flow.actors)
            yield f"{flag_name(name)} {model}: {flow.name} has no such model: give {models}"
    for model, layout in flags.layouts(flow.actors).items():
        if layout.processes > MAX_PROCESSES:
            yield (
                f"--replicas and --ranks: {model} has {layout.replicas} times {layout.ranks} processes: give "
                f"{MAX_PROCESSES} or less"
            )


def find_trainer_errors(options: Any, flow: Flow) -> Iterator[str]:
    """Yield the errors of --sink trainer: results that are no samples, and numbers that do not fit each other."""
    flags = chatlearn_flags(options)
    sample_error = find_sample_error(options, flow)
    if sample_error:
        yield f"--sink trainer: {sample_error}"
    step_samples = flags.train_micro_batch * flags.data_parallel
    if flags.train_global_batch % step_samples:
        reason = f"--train-micro-batch {flags.train_micro_batch}"
        if flags.data_parallel > 1:
            reason += f" times --data-parallel {flags.data_parallel}"
        yield f"--train-global-batch {flags.train_global_batch}: give a multiple of {reason}"
    needed = options.group_size * flags.relay_episodes
    if options.iterations < needed:
        yield (
            f"--iterations {options.iterations}: --relay-episodes {flags.relay_episodes} needs {needed} to fill the "
            f"relay buffer: give {needed} or more iterations"
        )


def find_sample_error(options: Any, flow: Flow) -> str:
    """Return why the results of a flow cannot be cut into samples, and what to do; "" if they can be.

    They can if every field has one entry per sample, and all have as many, at most MAX_SAMPLES.
    """
    # The catalogue has the flows of this study, and imports it first.
    from dataflow.flows.catalogue import FLOWS_OF_FIELDS

    other_flow = "one of ChatLearn's flows (--help flows)"
    if options.message not in FORMS_OF_SAMPLES:
        return f"{options.message} messages of {flow.name} cannot be cut into samples: give --message fields"
    results = [flow.message(name) for name in flow.returns]
    if any(message.is_flat for message in results):
        has_form_of_fields = options.message is None and options.flow in FLOWS_OF_FIELDS
        advice = f"--message fields, or {other_flow}" if has_form_of_fields else other_flow
        return f"the results of {flow.name} are flat, and cannot be cut into samples: give {advice}"
    counts: set[int] = set()
    for message in results:
        counts |= message.sample_counts
    if len(counts) > 1 or max(counts) > MAX_SAMPLES:
        return (
            f"the fields in the results of {flow.name} need equally many samples, at most {MAX_SAMPLES}: change its "
            f"messages, or give {other_flow}"
        )
    return ""
