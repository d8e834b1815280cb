"""The plan that a script's flags ask for on this machine, or why there is none."""

from dataclasses import replace
from pathlib import Path

from common.errors import UsageError, Waived
from common.flow.catalogue import build_flow
from common.flow.flow import Flow
from common.plan.options import Options
from common.plan.plan import Plan
from common.record.rows import Row, transports
from common.runtime import gpus, needs

MOST_ROWS = 100_000  # of a message that is split into samples
MOST_PROCESSES = 64  # of a model


def settle(runtime: str, options: Options) -> tuple[Plan, Waived | None]:
    """The plan; with it, where this machine does not meet a need of the row's, what to do about it.

    Raises:
        UsageError: what was asked cannot be.
    """
    try:
        flow = build_flow(options.flow, options.sizes, options.message)
    except ValueError as error:
        raise UsageError(str(error)) from None
    rows = transports(runtime)
    if options.transport is None:  # the fastest that there are GPUs for
        found = gpus.count() if options.device != "cpu" else 0
        options = replace(options, transport="nccl" if found >= len(flow.actors) else "shm")
    row = rows[str(options.transport)]
    options.refuse(row)
    _refuse(row, options, flow)
    device, found = gpus.resolve(options.device, row.needs.host_only, row.transport)
    plan = Plan(row, options, flow, device, here=Path.cwd())
    try:
        plan = replace(plan, gpus=needs.need_gpus(row, found, len(plan.flow.actors)))
    except Waived as waived:
        return plan, waived
    if options.address:
        needs.need_cluster(options.address)
    needs.need_memory(row, options, plan.flow)
    if runtime != "torch":
        plan = replace(plan, store_bytes=needs.object_store_bytes(row, options, plan.flow))
    return plan, None


def _refuse(row: Row, options: Options, flow: Flow) -> None:
    """What can be told once the flow is there.

    Raises:
        UsageError: it does not go with the flags.
    """
    if options.message == "packed" and flow.bare:
        raise UsageError(f"--message packed: every message of {flow.name} is one tensor already: leave it out")
    if options.as_shipped and not any(field.storage for message in flow.messages for field in message.fields):
        raise UsageError(f"--as-shipped: ChatLearn ships no views in {flow.name}: leave it out")
    for name in ("replicas", "ranks", "generation_batch"):
        for model in options.counts(name):
            if model not in flow.actors:
                known = ", ".join(flow.actors)
                raise UsageError(f"--{name.replace('_', '-')}: there is no model {model} in {flow.name}: give {known}")
    for model in options.model_times:
        if model not in (*flow.actors, *["trainer"] * (options.sink == "trainer")):
            raise UsageError(f"--model-seconds: there is no model {model} in {flow.name}: give {', '.join(flow.actors)}"
                             + ", or trainer with --sink trainer" * (model == "trainer"))  # fmt: skip
    replicas, ranks = options.counts("replicas"), options.counts("ranks")
    for model in flow.actors:
        count = replicas.get(model, 1) * ranks.get(model, 1)
        if count > MOST_PROCESSES:
            raise UsageError(f"--replicas times --ranks: {model} has {count} processes: give {MOST_PROCESSES} or fewer")
    if options.generation_batch and (flow.bare or options.message == "packed"):
        raise UsageError("--generation-batch: a flat tensor has no rows to cut: give --message fields")
    for model in options.counts("generation_batch"):
        messages = [flow.message(name) for task in flow.tasks_of(model) for name in (task.name, *task.reads)]
        rows = {count for message in messages for count in message.rows}
        if len(rows) > 1 or any(message.bare for message in messages):
            raise UsageError(f"--generation-batch: not every field that {model} reads and sends in {flow.name} has one "
                             "entry a sample: give one of ChatLearn's flows (--list-flows)")  # fmt: skip
    whole = options.trips_in_a_row * options.relay_episodes
    if row.is_chatlearns and options.iterations < whole:
        raise UsageError(f"--iterations {options.iterations}: the operations of a whole episode are recorded: give "
                         f"--episode times --relay-episodes, {whole} or more")  # fmt: skip
    # One in each channel and one in each actor's hands; Ray gives hinted edges a single buffer whatever is asked for.
    places = 2 * flow.shortest_path() - 1
    if row.needs.single_buffers and options.in_flight > places:
        many = f"{options.in_flight}: {row.transport} holds {places} trips of {flow.name} under way: give {places}"
        raise UsageError(f"--in-flight {many}")
    if options.sink == "trainer":
        if flow.bare:
            raise UsageError("--sink trainer: a flat tensor has no samples: give --message fields")
        samples = {count for name in flow.returns for count in flow.message(name).rows}
        if len(samples) > 1 or max(samples) > MOST_ROWS or any(flow.message(name).bare for name in flow.returns):
            raise UsageError(f"--sink trainer: what {flow.name} returns is no dict of fields with one entry a sample: "
                             "give one of ChatLearn's flows (--list-flows)")  # fmt: skip
    if options.inject and options.inject.who not in ("driver", *(task.name for task in flow.tasks)):
        raise UsageError(f"--inject: {options.inject.who} is none of the flow's tasks")
