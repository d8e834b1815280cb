"""What is computed from the samples when a record is read; none of it is stored."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Summary:
    """Statistics of a row's timed trips, in seconds; `variation` is standard deviation / mean."""

    count: int
    min: float
    median: float
    p95: float
    max: float
    variation: float


def summarise(seconds: list[float]) -> Summary:
    """Statistics of the samples.

    Raises:
        ValueError: there is no sample.
    """
    if not seconds:
        raise ValueError("no timed trip to summarise")
    samples = np.asarray(seconds)
    return Summary(
        count=len(seconds),
        min=float(samples.min()),
        median=float(np.median(samples)),
        p95=float(np.percentile(samples, 95)),
        max=float(samples.max()),
        variation=float(samples.std() / samples.mean()),
    )


def speedup_interval(seconds: list[float], baseline: list[float]) -> tuple[float, float, float]:
    """How many times faster the median trip is than the baseline's, and its 95 % bootstrap interval."""
    from scipy import stats  # half a second that the scripts do not need

    ratio = float(np.median(baseline) / np.median(seconds))
    if min(len(seconds), len(baseline)) < 2:
        return ratio, ratio, ratio
    interval = stats.bootstrap(
        (baseline, seconds), lambda a, b, axis: np.median(a, axis=axis) / np.median(b, axis=axis),
        method="percentile", rng=0, n_resamples=2000,
    ).confidence_interval  # fmt: skip
    return ratio, float(interval.low), float(interval.high)


def change(upper: list[float], lower: list[float]) -> str:
    """How the lower rung compares with the one above it; nothing is claimed that the samples do not bear out."""
    ratio, low, high = speedup_interval(lower, upper)
    if low <= 1 <= high or min(len(upper), len(lower)) < 2:
        return "no clear difference from"
    return f"{ratio:.3g}× faster than" if ratio > 1 else f"{1 / ratio:.3g}× slower than"
