"""Compare the times of runs with those of copies of the same bytes."""

from collections.abc import Callable, Sequence

import numpy as np

from dataflow.analysis.statistics import MIN_RUNS
from dataflow.catalogue.catalogue import Transport
from dataflow.flows.flow import Flow
from dataflow.records.schema import Run

MIN_SHARE = 0.9  # of the memcpy time, which was measured at another time, for readers that own a copy


def copy_seconds(
    run: Run, flow: Flow, transport: Transport, reduce: Callable[[Sequence[float]], float]
) -> float | None:
    """Return the least time that copies of all messages took in a run: by all cores if actors can copy at once."""
    passes = [run.memcpy_before_seconds + run.memcpy_after_seconds]
    if len(flow.edges) > flow.path_length(max) and not transport.requirements.single_process:
        passes.append(run.memcpy_all_cores_seconds)
    return min((float(reduce(seconds)) for seconds in passes if seconds), default=None)


def explain_impossible(runs: Sequence[Run], flow: Flow, transport: Transport) -> str | None:
    """Return why readers that own a copy cannot have got it in so little time; None if they can.

    As the machine may have been slower while the memcpy time of one run was measured, every run must be too fast,
    and there must be MIN_RUNS. Several readers that copy a message at once may read it from memory only once.
    """
    if len(runs) < MIN_RUNS or not all(run.readers_own_a_copy and run.seconds for run in runs):
        return None
    written = sum(edge.bytes for edge in flow.edges)
    read = sum(edge.bytes for edge in {edge.source: edge for edge in flow.edges}.values())
    bounds = [(copy_seconds(run, flow, transport, min) or 0) * (read + written) / (2 * written) for run in runs]
    share = max(np.median(run.seconds) / bound if bound else 1 for run, bound in zip(runs, bounds, strict=True))
    if share >= MIN_SHARE:
        return None
    return (f"in each of {len(runs)} runs the median iteration took less time than the fastest memcpy of its "
            f"bytes, by {1 - share:.0%} or more: find out which bytes were not copied")  # fmt: skip
