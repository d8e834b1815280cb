# SPDX-License-Identifier: Apache-2.0
"""Say how ChatLearn's own messages are shown: over every transport, beside flat tensors, and what each change does."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result
from dataflow.report import tables
from dataflow.report.charts import Chart
from dataflow.report.result_charts import draw_dots
from dataflow.report.sections import Group, Table, title_of
from dataflow.report.sentences import format_ratio, format_times_as_fast
from dataflow.report.stage_tables import stage_tables
from dataflow.report.suite_tables import CONFIGURATIONS
from dataflow.report.tables import Column, format_milliseconds, format_significant
from dataflow.studies.chatlearn.flags import TRANSPORT
from dataflow.studies.chatlearn.operation_tables import OPERATION_TABLE

CHANGES = tomllib.loads(Path(__file__).with_name("changes.toml").read_text(encoding="utf-8"))[
    "changes"
]


def describe_changes(group: Group) -> str:
    """Return a line of a list for each of CHANGES that makes a clear difference; "" if none does.

    Left out are those of which a side was not measured, or with other work or another number of iterations in flight.
    """
    by_label = {tables.short_label(result): result for result in group.ordered}
    lines = []
    for change in CHANGES:
        old = by_label.get(change["old"])
        new = by_label.get(change["new"])
        if old and new and old.work == new.work and old.in_flight == new.in_flight:
            ratio = Pair(old, new).ratio
            labels = f"`{change['old']}` → `{change['new']}`"
            if ratio.verdict in ("faster", "slower"):
                times, ends = format_ratio(ratio, invert=True)
                lines.append(
                    f"\n* {change['difference']} ({labels}): {times} times as fast ({ends})"
                )
    return "".join(lines)


def episode_columns(group: Group) -> Sequence[Column]:
    """Return the columns of ChatLearn's table of a group.

    A packed message has as many bytes as one flat tensor, so its row also has the time of the flat tensor with the same
    configuration. Factors are relative to the first result of queues with messages as sent, without --sink. What the
    group does not have is a dash, and so is a factor of rows with different numbers of iterations in flight.
    """
    queues = [
        r
        for r in group.ordered
        if r.transport.label == TRANSPORT and "sink" not in r.configuration.flags
    ]
    baseline = next((result for result in queues if result.workload.sizes.get("as_sent")), None)
    flat = {
        r.configuration: r for r in group.report if r.table == "chatlearn-flat" and r.status == "ok"
    }

    def flat_milliseconds(result: Result) -> str:
        other = flat.get(result.configuration) if result.workload.message == "packed" else None
        return format_milliseconds(other.typical_seconds if other else None)

    def format_factor(result: Result) -> str:
        if baseline and result.in_flight != baseline.in_flight:
            return "-"
        return format_times_as_fast(result, baseline)

    return (
        Column("configuration", tables.short_label),
        Column("in flight", lambda r: str(r.in_flight)),
        tables.TIME,
        *tables.TAIL_COLUMNS,
        Column("ms as one flat tensor", flat_milliseconds, rank=3),
        Column("stored per iteration", tables.format_stored, rank=4),
        Column("page faults", tables.format_faults, rank=4),
        tables.READERS,
        Column("x memcpy", lambda r: format_significant(r.times_memcpy), rank=2),
        tables.OVERHEAD,
        Column("times as fast as ref-queue as sent", format_factor, is_optional=True),
    )


def title_of_episodes(result: Result) -> str:
    samples = result.workload.sizes["batch_size"]
    return f"{title_of(result)}, {samples} samples, {result.check_every} iterations per episode"


def draw_episodes(group: Group) -> Chart | None:
    title = f"Time per iteration: {title_of_episodes(group.done[0])}"
    return draw_dots(
        group,
        "chatlearn_episodes",
        title,
        lambda r: f"{tables.short_label(r)}, {r.in_flight} in flight",
    )


CHANGE_LIST = Table(
    "chatlearn-changes",
    columns=lambda group: (),
    title=title_of_episodes,
    sentence=describe_changes,
)
EPISODES = Table(
    "episodes",
    columns=episode_columns,
    title=title_of_episodes,
    chart=draw_episodes,
    before=(CHANGE_LIST,),
    group_by=lambda result: (-result.check_every, result.workload.edges),
    is_preferred=lambda result: result.transport.label == TRANSPORT,
)
# Flat tensors of as many bytes as packed messages. Their times are also in the table and chart above.
FLAT = Table(
    "chatlearn-flat",
    CONFIGURATIONS.columns,
    CONFIGURATIONS.rows,
    lambda result: f"Flat tensors: {title_of(result)}",
)
SECTIONS = {
    "chatlearn": EPISODES,
    "chatlearn-flat": FLAT,
    "chatlearn-stages": stage_tables("chatlearn-stages"),
    "chatlearn-operations": OPERATION_TABLE,
}
