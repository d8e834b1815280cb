# SPDX-License-Identifier: Apache-2.0
"""Build the answers of README.md: what to change, and what an iteration costs then in copies and page faults."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow.analysis.campaigns import Row
from dataflow.analysis.outcomes import PredictedTime, rms_error
from dataflow.analysis.stored_costs import CostFile, StoredCost
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.records.machine import describe_gpus
from dataflow.report.campaign_tables import format_boots, format_memory
from dataflow.report.machine_columns import divide_means
from dataflow.report.outcome_tables import LARGE_BYTES, format_factor
from dataflow.report.price_tables import PREDICTED, list_priced_gains
from dataflow.report.tables import (
    Column,
    Section,
    format_milliseconds,
    format_range,
    format_significant,
    make_table,
)
from dataflow.units import format_bytes

NAME = "three-answers"
TABLE = "headline"
KEPT = f"{SIMPLEST} --retain-memory"
GRAPH = "graph shm"
NOT_MEASURED = "-"
UNKNOWN = "?"
MILLISECOND = 1e-3
MICROSECOND = 1e-6


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


@dataclass(frozen=True)
class AnswerSources:
    """What the answers are made from."""

    # Rows of machines to which costs are fitted, by the names of configurations.
    here: Mapping[str, Row]
    elsewhere: Mapping[str, Row]  # on other machines
    # What was predicted of machines to which no cost was fitted then, a list for each file of predictions.
    of_new_machines: Sequence[Sequence[PredictedTime]] = ()
    on_gpus: str = ""

    @property
    def rows(self) -> list[Row]:
        return [self.here[change.name] for change in CHANGES]

    @property
    def rows_elsewhere(self) -> list[Row]:
        return [self.elsewhere[change.name] for change in CHANGES if change.name in self.elsewhere]


def format_gain(change: Change, rows: Mapping[str, Row]) -> str:
    """Return how many times as fast as BASELINE a change is on these machines; "-" if that was not measured."""
    if change.name == BASELINE:
        return "1"
    if not rows.keys() >= {change.name, BASELINE}:
        return NOT_MEASURED
    gains = divide_means(rows[change.name], rows[BASELINE])
    return format_range([*gains.values()]) if gains else NOT_MEASURED


def build_three_answers(measured: AnswerSources, stored: CostFile) -> Section:
    """Return a table of three changes with what an iteration costs after them, and what was measured on GPUs.

    The section is empty if one of the changes was not measured.
    """
    names = {change.name for change in CHANGES}
    if not measured.here.keys() >= names:
        return Section(NAME, "")
    costs = {cost.configuration: cost for cost in stored.costs if cost.table == TABLE}
    columns = [
        Column("change", lambda change: change.text, is_text=True),
        Column(
            f"times as fast ({describe_boots(measured.rows)})",
            lambda change: format_gain(change, measured.here),
        ),
        Column("copies", lambda change: format_copies(costs.get(change.name))),
        Column("page faults", lambda change: format_faults(costs.get(change.name))),
        Column("other ms", lambda change: format_rest(costs.get(change.name))),
        Column("memory GiB", lambda change: format_memory(measured.here[change.name])),
    ]
    if BASELINE in measured.elsewhere:
        others = measured.rows_elsewhere
        header = f"on {describe_cores(others)} ({describe_boots(others)})"
        other = Column(header, lambda change: format_gain(change, measured.elsewhere))
        columns.insert(2, other)
    of_changes = [costs[name] for name in names if name in costs]
    parts = [describe_prices(measured.rows, stored), describe_errors(of_changes, measured)]
    notes = [" ".join(filter(None, parts)), describe_cheap_faults(measured.here, stored)]
    if measured.on_gpus:
        notes.append(f"**On a GPU:** {measured.on_gpus} More is [here](docs/cluster.md#gpus).")
    table = make_table(CHANGES, columns)
    return Section(NAME, "", describe_messages(measured.rows), table, notes=[*filter(None, notes)])


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
    return (
        f"One iteration sends {size} in {len(workload.edges)} messages. How much faster does a change make it? That "
        f"depends on the machine (here: {kind} with {describe_cores(rows)} and {gpus}, and tensors on CPUs; a boot is "
        "one start of one). Predictions use the cost: copies of all these bytes (fitted, with pickling in them), and "
        "page faults (counted):"
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
        f"Here, a copy by all cores took {format_range(copies)} ms, and a page fault {format_range(faults)} µs. "
        "[`machine`](#your-own-machine) measures both on yours, and `predict` does the sum."
    )


def describe_cheap_faults(by_name: Mapping[str, Row], stored: CostFile) -> str:
    """Return what kept memory gains where page faults are cheap, because it removes page faults. "" if not known."""
    rows = list_priced_gains(by_name, stored)
    # A machine may lack the campaign that measured both.
    known = [row for row in rows if row.place != PREDICTED and SIMPLEST in row.gains]
    measured = [row.gains[SIMPLEST] for row in known]
    cheapest = next((row for row in rows if row.place == PREDICTED), None)
    if not measured or cheapest is None:
        return ""
    price = format_significant(cheapest.fault_seconds / MICROSECOND)
    gain = format_significant(cheapest.gains[SIMPLEST])
    return (
        f"**Are page faults cheaper on your machine?** Step 2 was {format_range(measured)} times as fast as step 1 "
        f"here. With {price} µs per page fault, the model predicts {gain} times "
        "([not measured](docs/page-faults.md#what-a-page-fault-takes-and-what-the-variables-gain-then))."
    )


def describe_errors(costs: Sequence[StoredCost], measured: AnswerSources) -> str:
    """Return how far the times that follow from the costs are from the measured ones; "" without costs."""
    if not costs:
        return ""
    error = 100 * max(cost.error for cost in costs)
    sentences = [
        f"On our machines, these sums are off by up to {error:.0f} % (rms of a configuration)."
    ]
    new = [times for times in measured.of_new_machines if times]
    if new:
        factors = join_words([format_factor(factor_of_error(times)) for times in new])
        counts = join_words([str(len(times)) for times in new])
        sentences.append(
            f"Predictions for machines that were new to the model were off by a factor of {factors} (rms of {counts} "
            f"configurations with {format_bytes(LARGE_BYTES)} and more per iteration; one number per machine)."
        )
    return f"{' '.join(sentences)} [How far to trust predictions](docs/method.md#another-machine)."


def join_words(words: Sequence[str]) -> str:
    """Return words as in a sentence: "one, two and three"."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def factor_of_error(times: Sequence[PredictedTime]) -> float:
    """Return by which factor predictions miss the measured means (rms of the logarithms)."""
    return 1 + rms_error([(time.predicted.seconds, time.mean_seconds) for time in times])
