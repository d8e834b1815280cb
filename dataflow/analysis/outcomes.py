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
        newer = files[position + 1 :]
        until = find_next_moment(file, newer)
        outcomes.append(find_outcomes(file, campaigns, until))
    return outcomes


def find_next_moment(file: PredictionFile, newer: Sequence[PredictionFile]) -> str | None:
    """Return when the next predictions for the boot of a file were made; None if no newer file has them."""
    for other in newer:
        if other.boot == file.boot:
            return other.predicted_at
    return None


def find_outcomes(
    file: PredictionFile, campaigns: Campaigns, until: str | None = None
) -> list[PredictedTime]:
    """Return what a campaign after these predictions has measured on their boot; [] if there is none.

    until: the moment of the next predictions for this boot. Of several campaigns, it is the one with most of the
    predicted configurations, because one may have been interrupted.
    """
    best: list[PredictedTime] = []
    for results in campaigns.values():
        measured = [result for result in results if result.status == "ok"]
        if not follows(file, measured, until):
            continue
        outcomes = compare(file.predictions, measured)
        if len(outcomes) > len(best):
            best = outcomes
    return best


def follows(file: PredictionFile, measured: Sequence[Result], until: str | None) -> bool:
    """Return whether all runs of a campaign are on the boot of a file, and have started after its predictions.

    until: the moment of the next predictions, after which no run may have started; None: no limit. So a campaign that
    goes on beyond it counts for neither. All moments are texts of one form (UTC, ISO 8601), in the order of time.
    """
    started: list[str] = []
    for result in measured:
        if boot_of(result) != file.boot:
            return False
        started += [run.started_at for run in result.ok_runs]
    if not started:
        return False
    is_after = min(started) > file.predicted_at
    is_in_time = until is None or max(started) <= until
    return is_after and is_in_time


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


def rms_factor(pairs: Sequence[tuple[float, float]]) -> float:
    """Return by which factor predicted times miss the measured ones: the root mean square of log(predicted/measured).

    pairs: predicted and measured seconds, at least one pair.
    """
    squares = [log(predicted / measured) ** 2 for predicted, measured in pairs]
    return exp(sqrt(fmean(squares)))
