# SPDX-License-Identifier: Apache-2.0
"""Compare predictions with the campaign that was measured after them.

A prediction that was made after the measurement proves nothing. So a file of predictions names its time and the boot of
the machine, and only campaigns of this boot count in which each run has started later. A campaign counts only for the
last predictions before it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean

from dataflow.analysis.campaigns import Campaigns, boot_of
from dataflow.analysis.kept_predictions import KeptPrediction, PredictionFile
from dataflow.analysis.result import Result


@dataclass(frozen=True)
class PredictedTime:
    """A prediction, and what a campaign has measured after it."""

    predicted: KeptPrediction
    mean_seconds: float  # of all timed iterations
    median_seconds: float  # the geometric mean of the runs' medians

    @property
    def is_inside(self) -> bool:
        """Return whether the measured mean lies in the predicted interval; False if there is none."""
        if self.predicted.interval is None:
            return False
        low, high = self.predicted.interval
        return low <= self.mean_seconds <= high


def find_all_outcomes(
    files: Sequence[PredictionFile], campaigns: Campaigns
) -> list[list[PredictedTime]]:
    """Return for each file what the campaign after it has measured; [] without one. files: the oldest first."""
    outcomes = []
    for position, file in enumerate(files):
        later = [other for other in files[position + 1 :] if other.boot == file.boot]
        until = later[0].predicted_at if later else None
        outcomes.append(find_outcomes(file, campaigns, until))
    return outcomes


def find_outcomes(
    file: PredictionFile, campaigns: Campaigns, until: str | None = None
) -> list[PredictedTime]:
    """Return what a campaign after these predictions has measured on their boot; [] if there is none.

    until: the time of the next predictions for this boot; campaigns after it count for those. Of several campaigns, it
    is the one with most of the predicted configurations, because one may have been interrupted.
    """
    best: list[PredictedTime] = []
    for results in campaigns.values():
        measured = [result for result in results if result.status == "ok"]
        if not measured or not is_later(file, measured):
            continue
        if until and started_after(measured, until):
            continue
        outcomes = compare(file.predictions, measured)
        if len(outcomes) > len(best):
            best = outcomes
    return best


def started_after(measured: Sequence[Result], moment: str) -> bool:
    """Return whether a run of a campaign has started after a moment (ISO 8601)."""
    return any(run.started_at > moment for result in measured for run in result.ok_runs)


def is_later(file: PredictionFile, measured: Sequence[Result]) -> bool:
    """Return whether all ok runs of a campaign have the boot of the predictions, and have started after these."""
    for result in measured:
        if boot_of(result) != file.boot:
            return False
        if any(run.started_at <= file.predicted_at for run in result.ok_runs):
            return False
    return True


def compare(
    predictions: Sequence[KeptPrediction], measured: Iterable[Result]
) -> list[PredictedTime]:
    """Return the outcome of each prediction that was measured without a disturbance, in their order."""
    by_key = {}
    for result in measured:
        if not result.is_disturbed:
            workload = result.workload
            key = result.table, workload.flow, workload.bytes_per_iteration, result.label
            by_key[key] = result
    outcomes = []
    for predicted in predictions:
        key = predicted.table, predicted.flow, predicted.iteration_bytes, predicted.configuration
        found = by_key.get(key)
        if found is not None:
            mean = fmean(found.seconds)
            outcome = PredictedTime(predicted, mean, found.typical_median_seconds)
            outcomes.append(outcome)
    return outcomes


def rms_error(pairs: Sequence[tuple[float, float]]) -> float:
    """Return by which share predicted times miss the measured ones: the root mean square of log(predicted/measured).

    pairs: predicted and measured seconds, at least one pair.
    """
    squares = [log(predicted / measured) ** 2 for predicted, measured in pairs]
    return exp(sqrt(fmean(squares))) - 1
