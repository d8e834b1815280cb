# SPDX-License-Identifier: Apache-2.0
"""Say how the operations and bytes of ChatLearn's transport are shown: beside those of ChatLearn's formulas."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import msgspec

from dataflow.analysis.result import Result
from dataflow.plan.options import Options, options_of
from dataflow.report.sections import Group, Table
from dataflow.report.tables import Column
from dataflow.studies.chatlearn.counts import Measured
from dataflow.studies.chatlearn.formulas import (
    count_bytes,
    count_operations,
    find_formulas,
    find_turns,
    shape_of,
)

LAYOUT_FLAGS = ("replicas", "ranks", "data_parallel", "relay_episodes")
OPERATIONS = {
    "queue_actors": "queue actors",
    "driver_put": "driver put",
    "driver_get": "driver get",
    "driver_qsize": "driver qsize",
    "driver_payload_gets": "driver payload gets",
    "model_tasks": "model tasks",
    "stream_dataset_get": "StreamDataset get",
    "stream_dataset_qsize": "StreamDataset qsize",
    "trainer_queue_actors": "trainer queue actors",
    "trainer_put": "trainer put",
    "trainer_get": "trainer get",
    "trainer_blocking_gets": "trainer blocking gets",
}


def measured_of(result: Result) -> list[Measured]:
    """Return what each run recorded."""
    return [msgspec.convert(run.measured["chatlearn"], Measured) for run in result.shown_runs]


def options_of_result(result: Result) -> Options:
    return options_of(result.workload.flow, result.configuration.flags)


def expected_operations(result: Result) -> dict[str, int]:
    samples = int(result.workload.sizes["batch_size"])
    return count_operations(shape_of(result.flow, options_of_result(result), samples))


def format_layout(result: Result) -> str:
    """Return the flags that change who gets a message, or how often; without any, one process per model."""
    flags = result.configuration.flags
    words = [f"--{name.replace('_', '-')} {flags[name]}" for name in LAYOUT_FLAGS if name in flags]
    if "sink" not in flags:
        words.append("without a trainer")
    return " ".join(words) or "one process per model"


def format_operation(result: Result, name: str) -> str:
    """Return the count of every run, with ChatLearn's beside it if it is another one."""
    counts = {measured.operations[name] for measured in measured_of(result)}
    text = ", ".join(map(str, sorted(counts)))
    expected = expected_operations(result)[name]
    return text if counts == {expected} else f"{text} (ChatLearn: {expected})"


@dataclass(frozen=True)
class OperationRow:
    """One kind of operation, and how often each layout does it in an episode."""

    name: str  # in records
    results: Sequence[Result]  # of each layout

    @property
    def header(self) -> str:
        return OPERATIONS[self.name]

    @property
    def is_equal(self) -> bool:
        """Return whether all runs of all layouts have as many as ChatLearn."""
        for result in self.results:
            expected = expected_operations(result)[self.name]
            for measured in measured_of(result):
                if measured.operations[self.name] != expected:
                    return False
        return True


def format_equal(is_equal: bool) -> str:
    return "yes" if is_equal else "no"


def list_operations(group: Group) -> list[OperationRow]:
    results = sort_by_layout(group)
    return [OperationRow(name, results) for name in OPERATIONS]


def layout_column(result: Result) -> Column:
    return Column(format_layout(result), lambda row: format_operation(result, row.name))


def operation_columns(group: Group) -> Sequence[Column]:
    """Return a column per layout, between the operation and whether all its counts are those of ChatLearn."""
    layouts = [layout_column(result) for result in sort_by_layout(group)]
    return (
        Column("operation", attrgetter("header")),
        *layouts,
        Column("equal", lambda row: format_equal(row.is_equal)),
    )


def sort_by_layout(group: Group) -> list[Result]:
    """Return the results with a trainer first, and those with fewer flags before others."""

    def key(result: Result) -> tuple[bool, int, str]:
        flags = result.configuration.flags
        return "sink" not in flags, len(flags), format_layout(result)

    return sorted(group.done, key=key)


def title_of(result: Result) -> str:
    messages = options_of_result(result).group_size
    samples = result.workload.sizes["batch_size"]
    return (
        f"{result.flow.title}: operations per episode of {messages} messages of {samples} samples"
    )


def name_replicas(turn: Iterable[int]) -> str:
    return " ".join(f"r{number}" for number in turn)


def describe_order(group: Group) -> str:
    """Return which replicas got the messages of two episodes in the first run, and whether ChatLearn's do.

    Return "" if no model has several replicas.
    """
    sentences: list[str] = []
    for result in sort_by_layout(group):
        earlier = count_untimed(result)
        layouts = options_of_result(result).study.chatlearn.layouts(result.flow.actors)
        order = measured_of(result)[0].replica_order
        for model, episodes in order.items():
            turns = ", then ".join(name_replicas(turn) for turn in episodes)
            expected = find_turns(layouts[model].replicas, earlier, [*map(len, episodes)])
            sentences.append(
                f"The replicas of {model} got the messages of two episodes in this order: {turns}. "
                f"Equal to the turns of ChatLearn, which begin at r0 with the first of {earlier} earlier messages and "
                f"go on across episodes: {format_equal(episodes == expected)}."
            )
    return " ".join(sentences)


def count_untimed(result: Result) -> int:
    """Return how many messages came before the first timed episode: the very first one, and those of the warm-up."""
    return 1 + len(result.shown_runs[0].warmup_seconds)


@dataclass(frozen=True)
class MessageRow:
    """One message of a flow: its bytes in all records, and by ChatLearn's formula."""

    name: str
    recorded: Sequence[int]  # each number once
    formula: str
    expected: int | None  # None: ChatLearn's is not known

    @property
    def is_equal(self) -> bool | None:
        return None if self.expected is None else set(self.recorded) == {self.expected}


def list_messages(group: Group) -> list[MessageRow]:
    """Return the messages of all results of a group, which have equal sizes."""
    first = group.done[0]
    formulas = find_formulas(first.workload.flow)
    expected = count_bytes(first.workload.flow, first.workload.sizes)
    recorded: dict[str, set[int]] = {}
    for result in group.done:
        for measured in measured_of(result):
            add_sizes(recorded, measured.message_bytes)
    rows: list[MessageRow] = []
    for name, sizes in sorted(recorded.items()):
        rows.append(MessageRow(name, sorted(sizes), formulas.get(name, "-"), expected.get(name)))
    return rows


def add_sizes(recorded: dict[str, set[int]], sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        recorded.setdefault(name, set()).add(size)


def format_number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


MESSAGE_COLUMNS = (
    Column("message", attrgetter("name")),
    Column("bytes", lambda row: " or ".join(map(format_number, row.recorded))),
    Column("ChatLearn's bytes", lambda row: format_number(row.expected)),
    Column("formula", attrgetter("formula"), is_text=True),
    Column("equal", lambda row: "-" if row.is_equal is None else format_equal(row.is_equal)),
)
MESSAGE_TABLE = Table(
    "chatlearn-bytes",
    columns=lambda group: MESSAGE_COLUMNS,
    rows=list_messages,
    title=lambda result: f"{result.flow.title}: bytes per message",
)
OPERATION_TABLE = Table(
    "chatlearn-operations",
    columns=operation_columns,
    rows=list_operations,
    title=title_of,
    sentence=describe_order,
    before=(MESSAGE_TABLE,),
)
