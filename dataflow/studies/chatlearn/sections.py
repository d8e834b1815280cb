"""Say how ChatLearn's own messages are shown: over every transport, beside flat tensors, and what each change does."""

from collections.abc import Sequence
from dataclasses import replace

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result
from dataflow.catalogue.catalogue import CHATLEARN
from dataflow.report import tables
from dataflow.report.charts import DotChart
from dataflow.report.groups import Group, Table, draw_dots, title_of
from dataflow.report.sentences import format_factor, format_speed_up
from dataflow.report.stage_tables import stage_tables
from dataflow.report.suite_tables import CONFIGURATIONS
from dataflow.report.tables import Column, format_milliseconds, format_significant

# Changes of ChatLearn's messages: from, to, and what differs. A change without a clear difference is not shown.
ONE_BUFFER = "one buffer per message instead of hundreds of tensors"
JAGGED = "two tensors per list, values and offsets, instead of a tensor per sample"
CHANGES = (
    ("store ref-queue as sent", "store ref-queue", "views are sent without the rest of their storage"),
    ("store ref-queue as sent", "store ref-queue --retain-memory as sent", "freed memory stays in the process"),
    ("store ref-queue", "store ref-queue packed", ONE_BUFFER),
    ("store ref-queue packed", "store ref-queue --retain-memory packed", "freed memory stays in the process"),
    ("store ref-queue packed", "store ref-queue --keep-queues packed", "queues are not made anew in every episode"),
    ("store ref-queue --keep-queues packed", "store refs packed", "no queue actors"),
    ("store refs", "store refs packed", ONE_BUFFER),
    ("store refs", "store refs jagged", JAGGED),
    ("store refs", "store refs tensordict", "a TensorDict with nested tensors, as in verl"),
    ("store refs packed", "graph shm packed", "channels of a compiled graph instead of calls and objects"),
    ("graph shm as sent", "graph shm", "views are sent without the rest of their storage"),
    ("graph shm", "graph shm packed", ONE_BUFFER),
    ("graph shm", "graph shm jagged", JAGGED),
)


def describe_changes(group: Group) -> str:
    """Return a line of a list for each of CHANGES that was measured and makes a clear difference."""
    by_label = {tables.short_label(result): result for result in group.ordered}
    lines = []
    for old, new, difference in CHANGES:
        if old in by_label and new in by_label:
            ratio = Pair(by_label[old], by_label[new]).ratio
            if ratio.verdict in ("faster", "slower"):
                lines.append(f"\n* {difference} (`{old}` → `{new}`): {format_factor(ratio)}")
    return "".join(lines)


def episode_columns(group: Group) -> Sequence[Column]:
    queues = [r for r in group.ordered if r.transport.label == CHATLEARN and "sink" not in r.configuration.flags]
    baseline = next((result for result in queues if result.workload.sizes.get("as_sent")), None)
    flat = {r.configuration: r for r in group.report if r.table == "chatlearn-flat" and r.status == "ok"}

    def flat_milliseconds(result: Result) -> str:
        other = flat.get(result.configuration) if result.workload.message == "packed" else None
        return format_milliseconds(other.typical_seconds if other else None)

    return (
        Column("configuration", tables.short_label),
        Column("in flight", lambda r: str(r.in_flight)),
        Column("ms per iteration", lambda r: format_milliseconds(r.typical_seconds)),
        Column("ms as one flat tensor", flat_milliseconds, 3),
        Column("stored per iteration", tables.format_stored, 4),
        Column("page faults", tables.format_faults, 4),
        tables.READERS,
        Column("x memcpy", lambda r: format_significant(r.times_memcpy), 1),
        tables.OVERHEAD,
        Column("speed-up over ref-queue as sent", lambda r: format_speed_up(r, baseline)),
    )


def title_of_episodes(result: Result) -> str:
    samples = result.workload.sizes["batch_size"]
    return f"{title_of(result)}, {samples} samples, {result.check_every} iterations per episode"


def label_in_flight(result: Result) -> str:
    return f"{tables.short_label(result)}, {result.in_flight} in flight"


def draw_episodes(group: Group) -> DotChart:
    title = f"Time per iteration: {title_of_episodes(group.done[0])}"
    return draw_dots(group, "chatlearn_episodes", title, label_in_flight)


def by_episode(result: Result) -> tuple[object, ...]:
    return -result.check_every, result.workload.edges


CHANGE_LIST = Table("chatlearn-changes", columns=lambda group: (), title=title_of_episodes, sentence=describe_changes)
SECTIONS = {
    "chatlearn": Table(
        "episodes",
        columns=episode_columns,
        title=title_of_episodes,
        chart=draw_episodes,
        group_by=by_episode,
        before=(CHANGE_LIST,),
    ),
    # Flat tensors of as many bytes as packed messages. Their times are also in the table and chart above.
    "chatlearn-flat": replace(
        CONFIGURATIONS,
        name="chatlearn-flat",
        title=lambda result: f"Flat tensors: {title_of(result)}",
        sentence=lambda group: "",
        chart=lambda group: None,
        before=(),
    ),
    "chatlearn-stages": stage_tables("chatlearn-stages"),
}
