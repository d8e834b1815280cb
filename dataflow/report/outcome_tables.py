# SPDX-License-Identifier: Apache-2.0
"""Show how near predictions came that were kept before a campaign, and on a machine that was changed on purpose."""

from collections.abc import Sequence
from typing import NamedTuple

from dataflow.analysis.kept_checks import CheckedPrediction, CheckFile
from dataflow.analysis.kept_predictions import PredictionFile
from dataflow.analysis.outcomes import PredictedTime, rms_factor
from dataflow.report.tables import (
    Column,
    Section,
    format_ends_of_seconds,
    format_microseconds,
    format_milliseconds,
    format_signed_percent,
    format_significant,
    make_table,
)
from dataflow.units import format_bytes

NAME = "predictions"
LARGE_BYTES = 100 * 2**20  # of an iteration
CHECKS_NAME = "checks"
NO_CHECK = "No check of this kind was kept yet."
NONE_YET = "No campaign was measured yet for which predictions were kept before."


def format_difference(outcome: PredictedTime) -> str:
    return format_signed_percent(outcome.predicted.seconds / outcome.mean_seconds - 1)


def name_configuration(outcome: PredictedTime) -> str:
    return outcome.predicted.configuration


def name_table(outcome: PredictedTime) -> str:
    return outcome.predicted.table


def format_predicted(outcome: PredictedTime) -> str:
    return format_milliseconds(outcome.predicted.seconds)


def format_mean(outcome: PredictedTime) -> str:
    return format_milliseconds(outcome.mean_seconds)


def format_median(outcome: PredictedTime) -> str:
    return format_milliseconds(outcome.median_seconds)


COLUMNS = (
    Column("configuration", name_configuration),
    Column("table", name_table, is_text=True),
    Column("predicted ms", format_predicted),
    Column("95 % interval", lambda outcome: format_ends_of_seconds(outcome.predicted.interval)),
    Column("measured ms, mean", format_mean),
    Column("median", format_median),
    Column("predicted against mean", format_difference),
)


def outcome_sections(
    files: Sequence[PredictionFile], outcomes: Sequence[Sequence[PredictedTime]]
) -> list[Section]:
    """Return a table for each file that a campaign has followed; outcomes: one list per file, [] without one."""
    sections = []
    for file, measured in zip(files, outcomes, strict=True):
        if measured:
            day = file.predicted_at[:10]
            time = file.predicted_at[11:16]
            title = f"Boot {file.boot}, predicted on {day} at {time}"
            table = make_table(measured, COLUMNS)
            sections.append(Section(NAME, title, say_outcome(file, measured), table))
    return sections or [Section(NAME, "", NONE_YET)]


def find_predictions_of_new_machines(
    files: Sequence[PredictionFile], outcomes: Sequence[Sequence[PredictedTime]]
) -> list[list[PredictedTime]]:
    """Return what was predicted of large messages on machines to which no cost was fitted then, a list for each file.

    outcomes: a list for each of `files`. Files without a campaign after them are left out.
    """
    found = []
    for file, measured in zip(files, outcomes, strict=True):
        if measured and file.is_of_new_machine:
            found.append(select_large(measured))
    return found


def select_large(outcomes: Sequence[PredictedTime]) -> list[PredictedTime]:
    return [outcome for outcome in outcomes if outcome.predicted.iteration_bytes >= LARGE_BYTES]


def say_outcome(file: PredictionFile, outcomes: Sequence[PredictedTime]) -> str:
    """Return by how much the predictions of a boot miss, and whether it was among those to which costs were fitted.

    Large messages are apart, because the model is one of copies and page faults.
    """
    known = [outcome for outcome in outcomes if outcome.predicted.interval]
    inside = sum(outcome.is_inside for outcome in known)
    novelty = "At that time, no cost was fitted to this boot."
    if not file.is_of_new_machine:
        novelty = "The costs were fitted to this boot, too."
    large = select_large(outcomes)
    small = [outcome for outcome in outcomes if outcome not in large]
    size = format_bytes(LARGE_BYTES)
    errors = [f"With {size} per iteration and more, {say_errors(large)}"] if large else []
    if small:
        errors.append(f"With less, {say_errors(small)}")
    return (
        f"{' '.join(errors)} {inside} of {len(known)} means lie in their interval. {novelty} Of "
        f"{len(file.predictions)} predictions, {len(outcomes)} have a measurement that counts. This machine: "
        f"{file.cores} cores, {file.copy_gbps:g} GB/s, "
        f"{format_microseconds(file.fault_seconds)} µs per page fault."
    )


def say_errors(outcomes: Sequence[PredictedTime]) -> str:
    """Return by how much predictions miss, such as "predicted and measured means differ by ..."."""
    means = []
    medians = []
    for outcome in outcomes:
        predicted = outcome.predicted.seconds
        means.append((predicted, outcome.mean_seconds))
        medians.append((predicted, outcome.median_seconds))
    of_means = format_factor(rms_factor(means))
    of_medians = format_factor(rms_factor(medians))
    return (
        f"predicted and measured means differ by a factor of {of_means}, and medians by {of_medians} (rms of the "
        f"logarithms of {len(outcomes)})."
    )


def format_factor(factor: float) -> str:
    """Return a factor with three digits, such as 1.21."""
    return format_significant(factor, 3)


class CheckRow(NamedTuple):
    """A checked prediction, and the state of the machine."""

    file: CheckFile
    checked: CheckedPrediction


def format_machine(row: CheckRow) -> str:
    file = row.file
    price = format_microseconds(file.fault_seconds)
    cores = "1 core" if file.cores == 1 else f"{file.cores} cores"
    return f"{cores}, {file.copy_gbps:g} GB/s, {price} µs"


def format_miss(row: CheckRow) -> str:
    seconds = row.checked.measured_seconds
    if seconds is None:
        return "not measured"
    return f"{(row.checked.predicted.seconds / seconds - 1) * 100:+.0f} %"


CHECK_COLUMNS = (
    Column("machine", lambda row: row.file.state, is_text=True),
    Column("copies and page faults take", format_machine, is_text=True),
    Column("configuration", lambda row: row.checked.predicted.configuration),
    Column("predicted ms", lambda row: format_milliseconds(row.checked.predicted.seconds)),
    Column("95 % interval", lambda row: format_ends_of_seconds(row.checked.predicted.interval)),
    Column("measured ms, mean", lambda row: format_milliseconds(row.checked.measured_seconds)),
    Column("predicted against mean", format_miss),
)


def check_section(files: Sequence[CheckFile]) -> Section:
    """Return a row for each prediction that was checked on a machine in a state that its user has named."""
    rows = []
    for file in files:
        rows += [CheckRow(file, checked) for checked in file.checked]
    if not rows:
        return Section(CHECKS_NAME, "", NO_CHECK)
    return Section(CHECKS_NAME, "", say_kept_checks(rows), make_table(rows, CHECK_COLUMNS))


def say_kept_checks(rows: Sequence[CheckRow]) -> str:
    """Return by how much predictions miss the measured means (`rms_factor`), and how many means lie in their interval.

    Rows that were not measured are left out. If none is left, the sentence says that no run counts.
    """
    pairs = []
    known = 0
    inside = 0
    for row in rows:
        predicted = row.checked.predicted
        seconds = row.checked.measured_seconds
        if seconds is None:
            continue
        pairs.append((predicted.seconds, seconds))
        if predicted.interval is not None:
            low, high = predicted.interval
            known += 1
            inside += low <= seconds <= high
    if not pairs:
        return "No run of these checks counts."
    error = format_factor(rms_factor(pairs))
    return (
        f"Predicted and measured means differ by a factor of {error} (rms of the logarithms of {len(pairs)}), and "
        f"{inside} of {known} means lie in their interval."
    )
