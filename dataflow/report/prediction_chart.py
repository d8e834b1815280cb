# SPDX-License-Identifier: Apache-2.0
"""Draw predicted over measured times: of machines that were left out of the fit, and of predictions kept before."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import log

from dataflow.analysis.kept_predictions import PredictionFile
from dataflow.analysis.left_out import LeftOutTime
from dataflow.analysis.outcomes import PredictedTime, rms_factor
from dataflow.report.outcome_tables import format_factor
from dataflow.report.scatter_charts import ScatterChart, ScatterGroup
from dataflow.report.tables import Section
from dataflow.units import MILLISECOND

NAME = "prediction-chart"
NAME_LENGTH = 4  # of a boot
TOLERANCE = 0.2
LEFT_OUT = "the machine was left out of the fit"
BEFORE = "predicted before the campaign"


@dataclass(frozen=True)
class PredictedPoint:
    """A time that was predicted without knowing it, and the measured one."""

    configuration: str
    machine: str
    predicted_seconds: float
    measured_seconds: float

    @property
    def error(self) -> float:
        """Return predicted / measured - 1."""
        return self.predicted_seconds / self.measured_seconds - 1

    @property
    def distance(self) -> float:
        """Return how far the point is from the line of equality."""
        return abs(log(self.predicted_seconds / self.measured_seconds))


def prediction_section(
    left_out: Sequence[LeftOutTime],
    files: Sequence[PredictionFile],
    outcomes: Sequence[Sequence[PredictedTime]],
) -> Section:
    """Return the chart and what it says in numbers; an empty section without a point.

    outcomes: one list per file, [] for a file that no campaign has followed.
    """
    kinds = {
        LEFT_OUT: points_of_left_out(left_out),
        BEFORE: points_of_files(files, outcomes),
    }
    kinds = {name: points for name, points in kinds.items() if points}
    if not kinds:
        return Section(NAME, "")
    lines = [describe_points(name, points) for name, points in kinds.items()]
    lines += describe_refused(left_out)
    return Section(NAME, "", " ".join(lines), chart=draw_points(kinds, lines))


def points_of_left_out(items: Sequence[LeftOutTime]) -> list[PredictedPoint]:
    points = []
    for item in items:
        if item.predicted_seconds is not None:
            point = PredictedPoint(
                item.configuration, item.machine, item.predicted_seconds, item.measured_seconds
            )
            points.append(point)
    return points


def points_of_files(
    files: Sequence[PredictionFile], outcomes: Sequence[Sequence[PredictedTime]]
) -> list[PredictedPoint]:
    """Return the points of machines to which no cost was fitted when their times were predicted."""
    points = []
    for file, measured in zip(files, outcomes, strict=True):
        if not file.is_of_new_machine:
            continue
        for outcome in measured:
            predicted = outcome.predicted
            point = PredictedPoint(
                predicted.configuration, file.boot, predicted.seconds, outcome.mean_seconds
            )
            points.append(point)
    return points


def describe_points(name: str, points: Sequence[PredictedPoint]) -> str:
    """Return the rms of the logarithms as a factor, how many points are within the tolerance, and the farthest one."""
    pairs = [(point.predicted_seconds, point.measured_seconds) for point in points]
    near = [point for point in points if abs(point.error) <= TOLERANCE]
    machines = {point.machine for point in points}
    count = "one machine" if len(machines) == 1 else f"{len(machines)} machines"
    farthest = max(points, key=lambda point: point.distance)
    place = f"{farthest.configuration} on {farthest.machine[:NAME_LENGTH]}"
    error = format_factor(rms_factor(pairs))
    return (
        f"{name.capitalize()}: factor {error} (rms of the logarithms); {len(near)} of {len(points)} times on {count} "
        f"are predicted within {100 * TOLERANCE:.0f} %. The largest error is {100 * farthest.error:+.0f} % ({place})."
    )


def describe_refused(items: Sequence[LeftOutTime]) -> list[str]:
    """Return how many times have no point because the other machines' times are not explained; none without any."""
    refused = [item for item in items if item.predicted_seconds is None]
    if not refused:
        return []
    names = sorted({item.configuration for item in refused})
    return [
        f"Not predicted: {len(refused)} times ({', '.join(names)}), because copies and page faults do not explain "
        "those on the other machines."
    ]


def draw_points(kinds: dict[str, list[PredictedPoint]], lines: Sequence[str]) -> ScatterChart:
    """Return the chart, with a point per configuration and machine."""
    groups = []
    for name, points in kinds.items():
        predicted = [point.predicted_seconds / MILLISECOND for point in points]
        measured = [point.measured_seconds / MILLISECOND for point in points]
        groups.append(ScatterGroup(name, predicted, measured))
    machines = {point.machine for point in chain.from_iterable(kinds.values())}
    title = f"Predicted and measured times of an iteration, on {len(machines)} machines"
    caption = ("Each point is a configuration on one machine (one start of it).", *lines)
    return ScatterChart(
        "predictions",
        title,
        groups,
        TOLERANCE,
        "measured mean milliseconds per iteration",
        "predicted milliseconds per iteration",
        caption,
    )
