# SPDX-License-Identifier: Apache-2.0
"""Draw how many times as fast as the baseline configurations are, with a point for each machine of the campaigns."""

from collections.abc import Sequence

from dataflow.analysis.campaigns import MIN_BOOTS, Row
from dataflow.catalogue.catalogue import SIMPLEST
from dataflow.report import tables
from dataflow.report.charts import Chart, MachinePoint, Mark
from dataflow.report.drawing import MAX_ROWS, name_left_out, thin
from dataflow.report.machine_columns import (
    NAME_LENGTH,
    boots_of_rows,
    factors_of,
    format_factors,
    order_of,
    times_of,
)
from dataflow.report.sections import title_of
from dataflow.report.tables import format_range, format_significant

ANSWER = f"{SIMPLEST} --retain-memory"
ADVISED = (SIMPLEST, ANSWER, "graph shm", "graph shm --retain-memory")


def format_boots(count: int) -> str:
    """Return "one boot", or "3 boots"."""
    return "one boot" if count == 1 else f"{count} boots"


def format_memory(row: Row) -> str:
    """Return the peak memory of all processes of a run in GiB, the largest of all campaigns."""
    return format_significant(row.peak_memory_bytes / 2**30)


def draw_factors(rows: Sequence[Row]) -> Chart | None:
    """Return a chart of the factors, with a point for each machine; None if there is none."""
    shown = [row for row in rows if factors_of(row) and not row.is_baseline]
    if not shown:
        return None
    drawn = choose_drawn(shown)
    boots = boots_of_rows(rows)
    marks = []
    for row in drawn:
        label = f"{format_factors(row, boots)}; {format_memory(row)} GiB"
        marks.append(Mark(tables.short_label(row.newest), label, points_of_factors(row)))
    baseline = rows[0].baseline
    campaigns: set[str] = set()
    for row in rows:
        campaigns |= row.pairs.keys()
    caption = (
        f"Each mark is one machine: the mean time of {baseline.label}, divided by that of the configuration, in the "
        f"same campaigns ({len(campaigns)} on {format_boots(len(boots))}). Faint dots: divided by single iterations.",
        f"GiB: peak memory of all processes; that of {baseline.label} is {describe_baseline_memory(rows)} GiB.",
        *name_left_out(len(shown) - len(drawn), len(shown)),
    )
    title = describe_factor(rows) + title_of(baseline)
    axis = f"times as fast as {baseline.label} (logarithmic axis)"
    limits = {f"as fast as {baseline.label}": 1.0}
    return Chart("campaigns", title, {"": marks}, axis, limits, caption)


def choose_drawn(rows: Sequence[Row]) -> list[Row]:
    """Return at most MAX_ROWS rows in their order: those that pages give as advice, and the fastest of the others."""

    def importance(row: Row) -> tuple[bool, float]:
        return row.newest.name not in ADVISED, order_of(row)

    chosen = sorted(rows, key=importance)[:MAX_ROWS]
    return [row for row in rows if row in chosen]


def points_of_factors(row: Row) -> list[MachinePoint]:
    """Return the factor of each machine, and what it would be for each single iteration."""
    baseline = times_of(row, is_baseline=True)
    own = times_of(row)
    points = []
    for boot, factor in factors_of(row).items():
        mean = baseline[boot].mean
        times = thin(own[boot].seconds)
        samples = [mean / seconds for seconds in times]
        machine = name_boot(row, boot)
        points.append(MachinePoint(factor, samples, machine))
    return points


def name_boot(row: Row, boot: str) -> str:
    """Return the start of a boot's id and its processor, as in "1a2b: AMD EPYC"; only the start if none is recorded."""
    text = boot[:NAME_LENGTH]
    for campaign, pair in row.pairs.items():
        environments = pair.new.environments
        if row.factor.boots[campaign] == boot and environments:
            processor = environments[0].get("cpu_model")
            return f"{text}: {processor}"
    return text


def describe_baseline_memory(rows: Sequence[Row]) -> str:
    """Return the memory of the baseline in GiB; "-" if it has no row."""
    for row in rows:
        if row.is_baseline:
            return format_memory(row)
    return "-"


def describe_factor(rows: Sequence[Row]) -> str:
    """Return the first line of the title: the factors of ANSWER, or of the fastest, if there are enough machines.

    With fewer, it would be a ranking that nobody can trust.
    """
    comparable = [row for row in rows if row.is_comparable]
    if any(len(factors_of(row)) < MIN_BOOTS for row in comparable):
        return ""
    answers = [row for row in comparable if row.newest.name == ANSWER]
    subject = answers[0] if answers else min(comparable, key=order_of)
    name = tables.short_label(subject.newest)
    baseline = rows[0].baseline.label
    factors = [*factors_of(subject).values()]
    times = format_range(factors)
    memory = f"{format_memory(subject)} instead of {describe_baseline_memory(rows)} GiB"
    return f"{name} is {times} times as fast as {baseline} on {len(factors)} machines, with {memory}.\n"
