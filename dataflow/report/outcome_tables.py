# SPDX-License-Identifier: Apache-2.0
"""Show how near predictions came that were kept before a campaign was measured."""

from collections.abc import Sequence

from dataflow.analysis.kept_predictions import PredictionFile
from dataflow.analysis.outcomes import PredictedTime, rms_error
from dataflow.report.tables import Column, Section, format_ends, format_significant, make_table

NAME = "predictions"
MILLISECOND = 1e-3
MICROSECOND = 1e-6
NONE_YET = "No campaign was measured yet for which predictions were kept before."


def in_milliseconds(seconds: float) -> str:
    return format_significant(seconds / MILLISECOND)


def format_interval_of(outcome: PredictedTime) -> str:
    """Return the ends of the predicted interval in milliseconds; "-" if it is not known."""
    if outcome.predicted.interval is None:
        return "-"
    low, high = outcome.predicted.interval
    return format_ends((low / MILLISECOND, high / MILLISECOND))


def format_error(outcome: PredictedTime) -> str:
    error = outcome.predicted.seconds / outcome.mean_seconds - 1
    return f"{error * 100:+.0f} %"


def name_configuration(outcome: PredictedTime) -> str:
    return outcome.predicted.configuration


def name_table(outcome: PredictedTime) -> str:
    return outcome.predicted.table


def format_predicted(outcome: PredictedTime) -> str:
    return in_milliseconds(outcome.predicted.seconds)


def format_mean(outcome: PredictedTime) -> str:
    return in_milliseconds(outcome.mean_seconds)


def format_median(outcome: PredictedTime) -> str:
    return in_milliseconds(outcome.median_seconds)


COLUMNS = (
    Column("configuration", name_configuration),
    Column("table", name_table, is_text=True),
    Column("predicted ms", format_predicted),
    Column("95 % interval", format_interval_of),
    Column("measured ms, mean", format_mean),
    Column("median", format_median),
    Column("predicted against mean", format_error),
)


def outcome_sections(
    files: Sequence[PredictionFile], outcomes: Sequence[Sequence[PredictedTime]]
) -> list[Section]:
    """Return a table for each file that a campaign has followed; outcomes: one list per file, [] without one."""
    sections = []
    for file, measured in zip(files, outcomes, strict=True):
        if measured:
            title = f"Boot {file.boot}, predicted on {file.predicted_at[:10]}"
            table = make_table(measured, COLUMNS)
            sections.append(Section(NAME, title, say_outcome(file, measured), table))
    return sections or [Section(NAME, "", NONE_YET)]


def say_outcome(file: PredictionFile, outcomes: Sequence[PredictedTime]) -> str:
    """Return by how much the predictions of a boot miss, and whether it was among those to which costs were fitted."""
    means = []
    medians = []
    for outcome in outcomes:
        predicted = outcome.predicted.seconds
        means.append((predicted, outcome.mean_seconds))
        medians.append((predicted, outcome.median_seconds))
    known = [outcome for outcome in outcomes if outcome.predicted.interval]
    inside = sum(outcome.is_inside for outcome in known)
    novelty = "no cost was fitted to this boot"
    if file.boot in file.fitted_boots:
        novelty = "the costs were fitted to this boot, too"
    of_means = 100 * rms_error(means)
    of_medians = 100 * rms_error(medians)
    return (
        f"The predictions miss the mean times by {of_means:.0f} % and the medians by {of_medians:.0f} % (rms of "
        f"{len(outcomes)} of {len(file.predictions)} configurations; {novelty}; the others have no measurement that "
        f"counts). {inside} of "
        f"{len(known)} means lie in their interval. This machine: {file.cores} cores, {file.copy_gbps:g} GB/s, "
        f"{format_significant(file.fault_seconds / MICROSECOND)} µs per page fault."
    )
