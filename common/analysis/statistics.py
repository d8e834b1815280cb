"""What is computed from the samples when a record is read; none of it is stored. docs/statistics.md says why so."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MINIMUM_RUNS = 3  # of each row, for a verdict
P95_SAMPLES, P99_SAMPLES = 20, 100  # below them a percentile is about the largest sample, whose luck it is
CONFIDENCE = 0.95  # of the intervals that are shown
TRIMMED = 0.1  # of a row's runs, at either end: what disturbed one of ten shall not decide
VERDICT_P = 0.01  # of 27 rows at once, 0.05 would call one or two different from themselves
ALIKE = "no clear difference"

Runs = Sequence[Sequence[float]]  # the seconds of the trips of each run


@dataclass(frozen=True)
class Summary:
    """Statistics of a row's timed trips, in seconds; `variation` is standard deviation / mean.

    p95, p99: None where there are too few samples for them.
    """

    count: int
    min: float
    median: float
    p95: float | None
    p99: float | None
    max: float
    variation: float


def summarise(seconds: Sequence[float]) -> Summary:
    """Statistics of the samples.

    Raises:
        ValueError: there is no sample.
    """
    if not seconds:
        raise ValueError("no timed trip to summarise")
    samples, count = np.asarray(seconds), len(seconds)
    return Summary(
        count=count,
        min=float(samples.min()),
        median=float(np.median(samples)),
        p95=float(np.percentile(samples, 95)) if count >= P95_SAMPLES else None,
        p99=float(np.percentile(samples, 99)) if count >= P99_SAMPLES else None,
        max=float(samples.max()),
        variation=float(samples.std() / samples.mean()),
    )


@dataclass(frozen=True)
class Ratio:
    """How many times as long one row takes as another.

    low, high: the 95 % interval; None where a row has one run, which says nothing of how runs differ.
    p: how often two rows that are alike come out at least so far apart.
    runs: of the row that has fewer.
    """

    value: float
    low: float | None
    high: float | None
    p: float | None
    runs: int

    @property
    def verdict(self) -> str:
        if self.p is None or self.runs < MINIMUM_RUNS:
            return f"{'one run' if self.runs == 1 else f'{self.runs} runs'}: no verdict"
        if self.p >= VERDICT_P:
            return ALIKE
        return "slower" if self.value > 1 else "faster"


def typical_seconds(runs: Runs) -> float:
    """Of a row: the geometric mean of its runs' medians, trimmed, so that ratios of it are those of `ratio`."""
    from scipy import stats

    return float(np.exp(stats.trim_mean(_log_medians(runs), TRIMMED)))


def scatter(runs: Runs) -> float:
    """By what share runs of a row differ: the standard deviation of the logarithms of their medians; nan of one run."""
    return float(np.std(_log_medians(runs), ddof=1)) if len(runs) > 1 else float("nan")


def ratio(seconds: Runs, baseline: Runs) -> Ratio:
    """How many times as long a row takes as the baseline, by the medians of their runs.

    Trips of one process share its luck (memory, placement, what else went on), so a run counts once, by its median:
    the luck of the trips inside is in how the medians differ. Their logarithms are compared by Welch's t-test, which
    asks neither for equal scatter nor for equal numbers of runs; from ten runs on by Yuen's, which is the same of what
    is left when a tenth of them is cut off at either end. It widens the interval as few runs demand; resampling
    runs does not (Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69, 2015): of
    five and five that are alike, it calls one pair in eight different, as the tests show.
    """
    from scipy import stats  # half a second that the scripts do not need

    own, other = _log_medians(seconds), _log_medians(baseline)
    value, fewer = typical_seconds(seconds) / typical_seconds(baseline), min(len(own), len(other))
    if fewer < 2:
        return Ratio(value, None, None, None, fewer)
    # Numbers that were made up have no scatter to test with.
    if all(np.ptp(stats.trimboth(side, TRIMMED)) == 0 for side in (own, other)):
        return Ratio(value, value, value, float(value == 1), fewer)
    test = stats.ttest_ind(own, other, equal_var=False, trim=TRIMMED)
    low, high = np.exp(test.confidence_interval(CONFIDENCE))
    return Ratio(value, float(low), float(high), float(test.pvalue), fewer)


def ratio_of_alternated(seconds: Runs, baseline: Runs) -> Ratio:
    """How many times as long a row takes as the baseline, each run of which alternated with one of its own.

    Neighbouring trips met the same machine, so what differs is the rows: of each pair of runs the median of the trips'
    ratios counts, once. Their logarithms are tested against 0 by Student's t.
    """
    from scipy import stats

    pairs = zip(seconds, baseline, strict=True)
    logs = np.array([np.median(np.log(own) - np.log(other)) for own, other in pairs])
    value = float(np.exp(np.mean(logs)))
    if len(logs) < 2:
        return Ratio(value, None, None, None, len(logs))
    if np.ptp(logs) == 0:  # as above
        return Ratio(value, value, value, float(value == 1), len(logs))
    test = stats.ttest_1samp(logs, 0)
    low, high = np.exp(test.confidence_interval(CONFIDENCE))
    return Ratio(value, float(low), float(high), float(test.pvalue), len(logs))


def _log_medians(runs: Runs) -> np.ndarray:
    return np.log([np.median(seconds) for seconds in runs])


def change(upper: Runs, lower: Runs) -> str:
    """How the lower rung compares with the one above it; nothing is claimed that the runs do not bear out."""
    found = ratio(lower, upper)
    if found.verdict == "faster":
        return f"{1 / found.value:.3g}× faster than"
    if found.verdict == "slower":
        return f"{found.value:.3g}× slower than"
    return f"{found.verdict} {'from' if found.verdict == ALIKE else 'against'}"
