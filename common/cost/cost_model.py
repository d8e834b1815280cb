"""What a trip costs by its messages, tensors and bytes: t = a·messages + b·tensors + bytes/B, fitted to measured sizes.

For one flow a·messages is the model's constant. Three things are known to break the line, and are terms of their own:
Ray's store keeps messages of at most INLINED_BYTES in its calls, so that larger ones cost so much more each; tensors of
over THREADED_BYTES are copied by threads that must be started; and beyond some size a byte may cost more, or less, than
before: the knee. Errors are relative, as sizes go over orders of magnitude.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from common.cost.size import Point, Size

CONFIDENCE = 0.95
FAR = 0.1  # from where a residual counts less
NOTHING = 1e-4  # of a trip: what a bounded fit leaves instead of 0
TERMS = ("message", "stored message", "threaded tensor", "tensor", "byte", "byte beyond the knee")


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval; both ends are None where there are no more points than terms."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Fit:
    """The model of one transport.

    steps: which of "stored message" and "threaded tensor" it knows.
    knee_bytes: of a trip, where the cost of a byte changes; None: it does not, as far as was measured.
    """

    points: tuple[Point, ...]
    steps: tuple[str, ...] = ()
    knee_bytes: int | None = None

    def features(self, size: Size) -> np.ndarray:
        """What each of TERMS is multiplied by."""
        below = min(size.bytes, self.knee_bytes) if self.knee_bytes else size.bytes
        stored = size.stored if "stored message" in self.steps else 0
        threaded = size.threaded if "threaded tensor" in self.steps else 0
        return np.array([size.messages, stored, threaded, size.tensors, below, size.bytes - below], float)

    @cached_property
    def _rows(self) -> np.ndarray:
        """The features of each point over its seconds, so that a fit that is right gives 1."""
        return np.array([self.features(point.size) / point.seconds for point in self.points])

    @cached_property
    def seconds_a(self) -> np.ndarray:
        """Of each of TERMS, never negative; 0 where no point has any of it.

        A median that lies far off counts by its distance and not by the square of it (soft L1 loss).
        """
        from scipy import optimize  # half a second that the scripts do not need

        rows = self._rows / self._scale
        begin, _ = optimize.nnls(rows, np.ones(len(rows)))
        loss = {"loss": "soft_l1", "f_scale": FAR}
        found = optimize.least_squares(lambda x: rows @ x - 1, begin + 1e-12, bounds=(0, np.inf), **loss)
        return np.where(found.x > NOTHING, found.x, 0.0) / self._scale

    @cached_property
    def _scale(self) -> np.ndarray:
        largest = self._rows.max(axis=0)
        return np.where(largest > 0, largest, 1.0)

    @cached_property
    def residuals(self) -> np.ndarray:
        """Of each point, predicted over measured seconds, less 1."""
        return self._rows @ self.seconds_a - 1

    @cached_property
    def _free(self) -> np.ndarray:
        """The terms that the fit moved away from 0: only those were estimated."""
        return np.flatnonzero(self.seconds_a > 0)

    @property
    def degrees_of_freedom(self) -> int:
        return len(self.points) - len(self._free) - (self.knee_bytes is not None)

    @cached_property
    def _covariance(self) -> np.ndarray:
        """Of the free terms, each times its scale, from the residuals (ordinary least squares)."""
        rows = (self._rows / self._scale)[:, self._free]
        return np.linalg.pinv(rows.T @ rows) * float(self.residuals @ self.residuals) / self.degrees_of_freedom

    @property
    def _quantile(self) -> float:
        from scipy import stats

        return float(stats.t.ppf((1 + CONFIDENCE) / 2, self.degrees_of_freedom))

    @staticmethod
    def index(term: str) -> int:
        return TERMS.index(term)

    def estimate(self, term: str) -> Estimate:
        """Seconds for one of TERMS."""
        index = self.index(term)
        value = float(self.seconds_a[index])
        if self.degrees_of_freedom < 1 or index not in self._free:
            return Estimate(value, None, None)
        place = list(self._free).index(index)
        half = self._quantile * float(np.sqrt(self._covariance[place, place]) / self._scale[index])
        return Estimate(value, max(0.0, value - half), value + half)

    def predict(self, size: Size) -> Estimate:
        """Seconds of a trip of this size, with the interval in which a median of a new run is expected."""
        features = self.features(size)
        value = float(features @ self.seconds_a)
        if self.degrees_of_freedom < 1:
            return Estimate(value, None, None)
        own = (features / self._scale)[self._free]
        scatter = float(self.residuals @ self.residuals) / self.degrees_of_freedom * value**2
        relative = self._quantile * float(np.sqrt(own @ self._covariance @ own + scatter)) / value
        return Estimate(value, value * float(np.exp(-relative)), value * float(np.exp(relative)))

    def beyond(self, size: Size) -> list[str]:
        """In what a trip lies outside of what was measured; nothing where it lies within."""
        sizes, found = [point.size for point in self.points], []
        if not min(own.bytes for own in sizes) <= size.bytes <= max(own.bytes for own in sizes):
            found.append("bytes")
        if size.tensors > max(own.tensors for own in sizes):
            found.append("tensors")
        if size.messages not in {own.messages for own in sizes}:
            found.append("messages")
        return found


def fit(points: Sequence[Point], steps: tuple[str, ...] = ()) -> Fit:
    """The model with a knee where the points bear one out (F test, two terms more, at 5 %), and none elsewhere.

    The level is shared among the places where a knee could have been (Bonferroni), as the best of them is tested.

    Raises:
        ValueError: there are fewer than three points.
    """
    if len(points) < 3:
        raise ValueError(f"{len(points)} sizes are too few for a fit: give three or more")
    from scipy import stats

    straight = Fit(tuple(sorted(points, key=lambda point: point.size.bytes)), steps)
    sizes = sorted({point.size.bytes for point in points})
    bent = [replace(straight, knee_bytes=count) for count in sizes[2:-1]]
    best = min(bent, key=_misfit, default=straight)
    freedom = len(points) - len(straight._free) - 2
    if best is straight or freedom < 1:
        return straight
    ratio = (_misfit(straight) - _misfit(best)) / 2 / max(_misfit(best) / freedom, 1e-12)
    return best if stats.f.sf(ratio, 2, freedom) < (1 - CONFIDENCE) / len(bent) else straight


def _misfit(found: Fit) -> float:
    """What the fit minimises: the squares of the residuals where these are small."""
    return float(np.sum(2 * FAR**2 * (np.sqrt(1 + (found.residuals / FAR) ** 2) - 1)))
