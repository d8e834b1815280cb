"""Results as a ladder: on one ceiling, and each beside the baseline and the rung above it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from common.analysis.results import Result
from common.analysis.statistics import change
from common.record.rows import BASELINE, LADDER


def on_one_ceiling(results: Sequence[Result]) -> list[Result]:
    """The same rows with the median of their ceilings, so that shares compare and are those of the chart."""
    ceilings = [result.ceiling_seconds for result in results if result.ceiling_seconds]
    shared = float(np.median(ceilings)) if ceilings else None
    return [replace(result, shared_ceiling_seconds=shared) for result in results]


def baseline_of(result: Result, results: Sequence[Result]) -> Result | None:
    """The demo's baseline that the row compares with: measured alike, and trip by trip as it is."""
    name = result.named(BASELINE)
    return next((o for o in results if o.name == name and o.status == "ok" and result.episode == 1), None)


def causes(results: Sequence[Result]) -> dict[str, str]:
    """For each row whose rung above was measured alike: how it compares with it, and why."""
    by_name = {result.name: result for result in results}
    found = {}
    for result in results:
        row = LADDER.get(result.rung)
        above = by_name.get(result.named(row.above)) if row else None
        if row and above:
            found[result.name] = f"{change(above.seconds_by_run, result.seconds_by_run)} {above.name}: {row.because}"
    return found
