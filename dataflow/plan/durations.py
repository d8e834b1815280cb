# SPDX-License-Identifier: Apache-2.0
"""Expect how long runs take: as long as the runs of campaigns did on the machines of their records."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

from dataflow.plan.plan import Plan
from dataflow.records import files
from dataflow.records.schema import Configuration, Record, Run, Workload

# A disturbed run is measured again, and a measurement waits until another one on the machine has ended.
LONGER = "; longer if other programs disturb it"


@dataclass(frozen=True)
class PastRun:
    """An ok run of a campaign. Times are in seconds."""

    workload: Workload
    configuration: Configuration
    untimed_seconds: float  # of the first iteration and the warm-up
    iteration_seconds: float  # of one timed iteration
    # From the start of the run to that of the next one, without iterations: starting Ray and the actors, verifying,
    # ending. None: nothing was measured after it.
    other_seconds: float | None

    def is_of(self, plan: Plan) -> bool:
        """Return whether it measured exactly this workload with this configuration."""
        return self.workload == plan.workload and self.configuration == plan.configuration


class Durations:
    """The durations of runs in campaigns. Without campaigns, all durations are unknown (None)."""

    def __init__(self, campaigns: Path) -> None:
        self.runs: list[PastRun] = []
        for folder in sorted(campaigns.glob("*/")):
            if any(folder.glob("*.json*")):
                self.runs += read_campaign(folder)

    def iterations_seconds(self, plan: Plan) -> float | None:
        """Return the time of all iterations of a run of a plan; None if no campaign measured it."""
        count = plan.options.iterations
        past = [run for run in self.runs if run.is_of(plan)]
        times = [run.untimed_seconds + count * run.iteration_seconds for run in past]
        return median(times) if times else None

    def other_seconds(self, plan: Plan) -> float | None:
        """Return the time of a run besides its iterations; None if it is not known.

        If no campaign has exactly this configuration and workload, the runs of its runtime with the smallest messages
        count, because the time besides the iterations grows with the bytes that are verified. Last runs of campaigns
        do not count: it is not known when they ended.
        """
        runs = [run for run in self.runs if run.is_of(plan)]
        if not runs:
            runtime = plan.transport.runtime.name
            same = [run for run in self.runs if run.configuration.runtime == runtime]
            sizes = [run.workload.bytes_per_iteration for run in same]
            smallest = min(sizes, default=0)
            runs = [run for run in same if run.workload.bytes_per_iteration == smallest]
        times = [run.other_seconds for run in runs if run.other_seconds is not None]
        return median(times) if times else None

    def describe_total(self, plans: Sequence[Plan]) -> str:
        """Return how long one run of each plan takes together, as a sentence.

        Return "" without plans, or if the `other_seconds` of one of them are not known.
        """
        total_seconds = 0.0
        unknown = 0
        for plan in plans:
            other_seconds = self.other_seconds(plan)
            if other_seconds is None:
                return ""
            iterations_seconds = self.iterations_seconds(plan)
            if iterations_seconds is None:
                unknown += 1
            total_seconds += other_seconds + (iterations_seconds or 0.0)
        if not plans:
            return ""
        count = "1 run" if len(plans) == 1 else f"{len(plans)} runs"
        total = format_duration(total_seconds)
        expected = f"expected time: {total} for {count} with start and end, as in results/campaigns"
        if unknown:
            which = "the iterations"
            if unknown < len(plans):
                which = f"the iterations of {unknown} of them"
            return f"{expected}, plus {which}, whose time is not known{LONGER}"
        return f"{expected}{LONGER}"


def read_campaign(folder: Path) -> list[PastRun]:
    """Return the ok runs of a campaign. They were measured one after the other, repetitions included."""
    measured: list[tuple[Record, Run]] = []
    for record in files.load_all([folder]):
        measured += [(record, run) for run in record.runs if run.status != "skipped"]
    measured.sort(key=start_of)
    past = []
    for position, (record, run) in enumerate(measured):
        if run.status != "ok":
            continue
        is_last = position == len(measured) - 1
        next_start = "" if is_last else measured[position + 1][1].started_at
        past.append(make_past_run(record, run, next_start))
    return past


def start_of(measured: tuple[Record, Run]) -> tuple[str, int]:
    _, run = measured
    return run.started_at, run.order


def make_past_run(record: Record, run: Run, next_start: str) -> PastRun:
    """Return what an ok run took. `next_start` is when the next one started; "" if there is none."""
    untimed_seconds = (run.first_seconds or 0) + sum(run.warmup_seconds)
    timed_seconds = sum(run.group_seconds or run.seconds)
    iteration_seconds = median(run.seconds)
    if 0 < len(run.group_seconds) < len(run.seconds):
        # Iterations that are in flight together overlap.
        iteration_seconds = timed_seconds / len(run.seconds)
    other_seconds = None
    if next_start:
        begin = datetime.fromisoformat(run.started_at)
        taken = datetime.fromisoformat(next_start) - begin
        other_seconds = max(0.0, taken.total_seconds() - untimed_seconds - timed_seconds)
    return PastRun(
        workload=record.workload,
        configuration=record.configuration,
        untimed_seconds=untimed_seconds,
        iteration_seconds=iteration_seconds,
        other_seconds=other_seconds,
    )


def format_duration(seconds: float) -> str:
    """Return whole seconds, or minutes for two or more."""
    if seconds < 120:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min"
