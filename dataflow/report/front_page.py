# SPDX-License-Identifier: Apache-2.0
"""Build the answers of README.md: what to change, and what an iteration costs then in copies and page faults."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow.analysis.campaigns import Row
from dataflow.analysis.kept_checks import CheckFile
from dataflow.analysis.outcomes import PredictedTime, rms_factor
from dataflow.analysis.stored_costs import CostFile, StoredCost
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.records.machine import chosen_huge_pages, describe_gpus
from dataflow.report.campaign_tables import format_boots, format_memory
from dataflow.report.machine_columns import divide_means
from dataflow.report.outcome_tables import LARGE_BYTES, format_factor
from dataflow.report.price_tables import average_byte_seconds, seconds_of
from dataflow.report.tables import (
    Column,
    Section,
    format_microseconds,
    format_milliseconds,
    format_range,
    format_significant,
    make_table,
)
from dataflow.units import GB, MICROSECOND, MILLISECOND, format_bytes

NAME = "three-answers"
TABLE = "headline"
KEPT = f"{SIMPLEST} --retain-memory"
DIRECT = "rdt nixl --retain-memory"
GRAPH = "graph shm"
KEPT_GRAPH = f"{GRAPH} --retain-memory"
CHEAP_FAULT = 0.1e-6  # seconds of a page fault: assumed, less than on all machines here
NOT_MEASURED = "-"
UNKNOWN = "?"
SETTLED = (
    "With the variables, boots are less alike: not all campaigns waited equally long until kept memory had settled "
    "([method](docs/method.md#statistics-of-one-measurement))."
)


@dataclass(frozen=True)
class Change:
    """What to change in a program, and the configuration that has the change."""

    name: str
    text: str


CHANGES = (
    Change(BASELINE, f"none: the driver gets each message and passes it on (`{BASELINE}`)"),
    Change(
        SIMPLEST,
        f"1. **Pass references on**: no `ray.get` in the driver; if it computes, let an actor do that (`{SIMPLEST}`)",
    ),
    Change(KEPT, f"2. **Keep freed memory**, too, with four environment variables (`{KEPT}`)"),
    Change(GRAPH, f"3. **Or compile the calls into a graph**, without the variables (`{GRAPH}`)"),
)
# Shown if they were measured.
MORE_CHANGES = (
    Change(
        DIRECT,
        "Or [Ray Direct Transport](docs/rdt.md) over NIXL, with the variables, and with memory of senders that was "
        f"registered before (`{DIRECT}`)",
    ),
    Change(KEPT_GRAPH, f"2 and 3 together: a graph, and the variables (`{KEPT_GRAPH}`)"),
)


@dataclass(frozen=True)
class AnswerSources:
    """What the answers are made from."""

    # Rows of machines to which costs are fitted, by the names of configurations.
    here: Mapping[str, Row]
    elsewhere: Mapping[str, Row]  # on other machines
    # What was predicted of machines to which no cost was fitted then, a list for each file of predictions.
    of_new_machines: Sequence[Sequence[PredictedTime]] = ()
    on_gpus: str = ""
    of_systems: str = ""  # what changes of known systems have gained
    checks: Sequence[CheckFile] = ()

    @property
    def rows(self) -> list[Row]:
        return [self.here[change.name] for change in CHANGES]

    @property
    def rows_elsewhere(self) -> list[Row]:
        return [self.elsewhere[change.name] for change in CHANGES if change.name in self.elsewhere]


@dataclass(frozen=True)
class CheckedGain:
    """How many times as fast as BASELINE a machine that was checked has run GRAPH."""

    file: CheckFile
    measured: float
    predicted: float  # with the page faults of this machine


def format_gain(change: Change, rows: Mapping[str, Row]) -> str:
    """Return how many times as fast as BASELINE a change is on these machines; "-" if that was not measured."""
    if change.name == BASELINE:
        return "1"
    if not rows.keys() >= {change.name, BASELINE}:
        return NOT_MEASURED
    gains = divide_means(rows[change.name], rows[BASELINE])
    return format_range([*gains.values()]) if gains else NOT_MEASURED


def build_three_answers(measured: AnswerSources, stored: CostFile) -> Section:
    """Return a table of changes with what an iteration costs after them, and what was measured on GPUs.

    The section is empty if one of the three answers was not measured.
    """
    names = {change.name for change in CHANGES}
    if not measured.here.keys() >= names:
        return Section(NAME, "")
    more = [change for change in MORE_CHANGES if change.name in measured.here]
    shown = [*CHANGES, *more]
    costs = {cost.configuration: cost for cost in stored.costs if cost.table == TABLE}
    columns = [
        Column("change", lambda change: change.text, is_text=True),
        *make_measured_columns(measured),
        make_cheap_column(costs, stored),
        *make_cost_columns(costs, shown),
        Column("memory GiB", lambda change: format_memory(measured.here[change.name])),
    ]
    table = make_table(shown, columns)
    notes = write_notes(measured, stored, find_costs(shown, costs))
    return Section(NAME, "", describe_messages(measured.rows), table, notes=notes)


def write_notes(
    measured: AnswerSources, stored: CostFile, costs: Sequence[StoredCost]
) -> list[str]:
    """Return what copies and page faults take, how far off their sum is, and what GPUs took if it was measured."""
    sentences = [describe_prices(measured.rows, stored)]
    errors = describe_errors(costs, measured)
    if errors:
        sentences.append(errors)
    sentences.append(SETTLED)
    notes = [" ".join(sentences), describe_cheap_faults(costs, measured, stored)]
    if measured.of_systems:
        notes.append(
            f"**In a known system itself**, so many times as fast: {measured.of_systems} "
            "([more](docs/in-your-code.md#how-much-faster))."
        )
    if measured.on_gpus:
        notes.append(f"**On a GPU:** {measured.on_gpus} More is [here](docs/cluster.md#gpus).")
    return notes


def make_measured_columns(measured: AnswerSources) -> list[Column]:
    """Return the columns of measured gains: on the machines of the fit, and on others if they measured BASELINE."""
    here = f"times as fast ({describe_boots(measured.rows)})"
    columns = [Column(here, lambda change: format_gain(change, measured.here))]
    if BASELINE in measured.elsewhere:
        others = measured.rows_elsewhere
        elsewhere = f"on {describe_cores(others)} ({describe_boots(others)})"
        columns.append(Column(elsewhere, lambda change: format_gain(change, measured.elsewhere)))
    return columns


def make_cost_columns(costs: Mapping[str, StoredCost], shown: Sequence[Change]) -> list[Column]:
    """Return copies, page faults, and the rest of the time if any of the changes has one."""
    columns = [
        Column("copies", lambda change: format_copies(costs.get(change.name))),
        Column("page faults", lambda change: format_faults(costs.get(change.name))),
    ]
    if any(cost.fixed_seconds for cost in find_costs(shown, costs)):
        columns.append(Column("other ms", lambda change: format_rest(costs.get(change.name))))
    return columns


def find_costs(changes: Sequence[Change], costs: Mapping[str, StoredCost]) -> list[StoredCost]:
    """Return the costs of changes, without those that copies and page faults do not explain."""
    return [costs[change.name] for change in changes if change.name in costs]


def make_cheap_column(costs: Mapping[str, StoredCost], stored: CostFile) -> Column:
    """Return the column of gains that the costs predict where a page fault takes CHEAP_FAULT, and copies as here."""
    byte_seconds = average_byte_seconds(stored)
    base = costs.get(BASELINE)

    def predict_gain(change: Change) -> str:
        cost = costs.get(change.name)
        if base is None or cost is None:
            return UNKNOWN
        before = seconds_of(base, byte_seconds, CHEAP_FAULT)
        after = seconds_of(cost, byte_seconds, CHEAP_FAULT)
        return format_significant(before / after)

    price = format_microseconds(CHEAP_FAULT)
    return Column(f"predicted for {price} µs per page fault", predict_gain)


def format_copies(cost: StoredCost | None) -> str:
    """Return how many times all bytes are copied; "?" if copies and page faults do not explain the time."""
    return UNKNOWN if cost is None else format_significant(cost.copies)


def format_rest(cost: StoredCost | None) -> str:
    """Return the milliseconds that neither copies nor page faults explain."""
    if cost is None:
        return UNKNOWN
    return format_milliseconds(cost.fixed_seconds) if cost.fixed_seconds else "0"


def format_faults(cost: StoredCost | None) -> str:
    return UNKNOWN if cost is None else format_significant(cost.faults)


def describe_messages(rows: Sequence[Row]) -> str:
    """Return what an iteration sends, and on which machines it was measured."""
    workload = rows[0].newest.workload
    size = format_bytes(workload.bytes_per_iteration)
    environments = environments_of(rows)
    are_virtual = all(environment.get("virtual_machine") for environment in environments)
    kind = "virtual machines" if are_virtual else "machines"
    gpus = " or ".join(sorted({describe_gpus(environment) for environment in environments}))
    settings = sorted({chosen_huge_pages(environment) or UNKNOWN for environment in environments})
    allowed = " or ".join(settings)
    return (
        f"One iteration sends {size} in {len(workload.edges)} messages. How much faster does a change make it? "
        f"Measured on {kind} with {describe_cores(rows)}, {gpus}, and huge pages set to {allowed}; tensors are on "
        "CPUs, and a *boot* is one start of a machine. On yours, the factors differ. So the table also has what an "
        "iteration costs: *copies* of all these bytes (fitted, with pickling in them) and *page faults* (counted). "
        "*Memory* is the peak of all processes, and pages that they share count in each."
    )


def environments_of(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return the machines and versions of all results."""
    environments: list[dict[str, Any]] = []
    for row in rows:
        for pair in row.pairs.values():
            environments += pair.new.environments
    return environments


def describe_cores(rows: Iterable[Row]) -> str:
    counts = [environment["logical_cpus"] for environment in environments_of(rows)]
    return f"{format_range(counts)} cores"


def describe_boots(rows: Sequence[Row]) -> str:
    boots: set[str] = set()
    for row in rows:
        boots |= row.boots
    return format_boots(len(boots))


def describe_prices(rows: Sequence[Row], stored: CostFile) -> str:
    """Return what a copy and a page fault took on the machines."""
    size = rows[0].newest.workload.bytes_per_iteration
    copies = [size * machine.byte_seconds / MILLISECOND for machine in stored.machines]
    faults = [machine.fault_seconds / MICROSECOND for machine in stored.machines]
    return (
        "[`machine`](#your-own-machine) measures what a copy and a page fault take on yours (here, a copy by all cores "
        f"took {format_range(copies)} ms, and a page fault {format_range(faults)} µs). `predict` does the sum; with "
        "more than two cores, a copy counts by as many threads as actors copy at once."
    )


def describe_cheap_faults(
    costs: Sequence[StoredCost], measured: AnswerSources, stored: CostFile
) -> str:
    """Return what the column of cheap page faults assumes, how wrong it can be, and the measurement nearest to it."""
    fault_microseconds = format_microseconds(CHEAP_FAULT)
    size = measured.rows[0].newest.workload.bytes_per_iteration
    byte_seconds = average_byte_seconds(stored)
    copy_milliseconds = format_milliseconds(size * byte_seconds)
    copy_gbps = format_significant(1 / byte_seconds / GB)
    sentences = [
        "**Are page faults cheaper on your machine?** Then the variables gain less. The column assumes "
        f"{fault_microseconds} µs per page fault, and {copy_milliseconds} ms per copy ({copy_gbps} GB/s by both cores, "
        "the mean of our boots). It is predicted, not measured "
        "([other prices](docs/page-faults.md#what-a-page-fault-takes-and-what-the-variables-gain-then))."
    ]
    factors = [cost.factor for cost in costs if cost.factor]
    if factors:
        largest = format_significant(max(factors))
        sentences.append(
            "Each of its numbers divides two predicted times, each of which can be wrong by a factor of up to "
            f"{largest} (95 %)."
        )
    sentences.append(describe_nearest_check(measured.checks))
    sentences.append(
        "The variables also gain less if `/sys/kernel/mm/transparent_hugepage/enabled` says `[always]` "
        "([times](docs/page-faults.md#huge-pages-for-all-memory))."
    )
    return " ".join(filter(None, sentences))


def find_checked_gain(file: CheckFile) -> CheckedGain | None:
    """Return the gain of GRAPH in a check; None if it has no time of BASELINE or GRAPH."""
    by_name = {}
    for item in file.checked:
        if item.predicted.table == TABLE:
            by_name[item.predicted.configuration] = item
    before = by_name.get(BASELINE)
    after = by_name.get(GRAPH)
    if before is None or after is None:
        return None
    if before.measured_seconds is None or after.measured_seconds is None:
        return None
    return CheckedGain(
        file=file,
        measured=before.measured_seconds / after.measured_seconds,
        predicted=before.predicted.seconds / after.predicted.seconds,
    )


def describe_nearest_check(checks: Sequence[CheckFile]) -> str:
    """Return the gain of GRAPH in the check whose page faults take nearest to CHEAP_FAULT; "" without one."""
    gains = list(filter(None, map(find_checked_gain, checks)))
    if not gains:
        return ""
    nearest = min(gains, key=lambda gain: abs(gain.file.fault_seconds - CHEAP_FAULT))
    fault_microseconds = format_microseconds(nearest.file.fault_seconds)
    runs = "one run" if nearest.file.runs == 1 else f"{nearest.file.runs} runs"
    return (
        f"Where a page fault took {fault_microseconds} µs ({nearest.file.state}; {runs} per configuration), step 3 was "
        f"[measured](docs/method.md#another-machine) as {format_significant(nearest.measured)} times as fast as the "
        f"first row; for that machine, {format_significant(nearest.predicted)} times were predicted."
    )


def describe_errors(costs: Sequence[StoredCost], measured: AnswerSources) -> str:
    """Return how far the times that follow from the costs are from the measured ones; "" without costs."""
    if not costs:
        return ""
    error = 100 * max(cost.error for cost in costs)
    text = f"On the machines that the costs were fitted to, the rms error of a configuration is up to {error:.0f} %"
    new = [times for times in measured.of_new_machines if times]
    if new:
        factors = join_words([format_factor(factor_of_error(times)) for times in new])
        counts = join_words([str(len(times)) for times in new])
        size = format_bytes(LARGE_BYTES)
        text += (
            f". On machines that were new to the model, predictions were off by a factor of {factors} (rms of {counts} "
            f"configurations with {size} and more per iteration; one number per machine)"
        )
    return f"{text}. [How far to trust it](docs/method.md#another-machine)."


def join_words(words: Sequence[str]) -> str:
    """Return words as in a sentence: "one, two and three"."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def factor_of_error(times: Sequence[PredictedTime]) -> float:
    """Return by which factor predictions miss the measured means (rms of the logarithms)."""
    return rms_factor([(time.predicted.seconds, time.mean_seconds) for time in times])
