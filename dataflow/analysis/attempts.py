# SPDX-License-Identifier: Apache-2.0
"""Tell planned runs from the repetitions of those that were disturbed, and count both in one way everywhere."""

from collections.abc import Sequence

from dataflow.records.schema import Run

# A planned run and its repetitions: measure/supervisor.py repeats a disturbed run at most twice (MAX_REPEATS).
ALL_ATTEMPTS = 3


class PlannedRun:
    """One run that was asked for, with its repetitions. It is one run in every count."""

    def __init__(self, first: Run, allows_disturbed: bool) -> None:
        self.attempts = [first]
        self.allows_disturbed = allows_disturbed

    @property
    def ok_attempts(self) -> list[Run]:
        return [run for run in self.attempts if run.status == "ok"]

    @property
    def quiet_attempts(self) -> list[Run]:
        """Return the ok attempts that nothing disturbed."""
        return [run for run in self.ok_attempts if not run.disturbance]

    @property
    def is_ok(self) -> bool:
        return bool(self.ok_attempts)

    @property
    def is_repeated(self) -> bool:
        return len(self.attempts) > 1

    @property
    def is_disturbed(self) -> bool:
        """Return whether each ok attempt was disturbed."""
        return self.is_ok and not self.quiet_attempts

    @property
    def is_exhausted(self) -> bool:
        """Return whether it was repeated as often as possible, and was disturbed each time."""
        return self.is_disturbed and len(self.ok_attempts) >= ALL_ATTEMPTS

    def is_repeated_by(self, run: Run) -> bool:
        """Return whether a run of the same record is a repetition: it has the position of a disturbed run."""
        last = self.attempts[-1]
        was_disturbed = last.status == "ok" and bool(last.disturbance)
        return was_disturbed and not self.allows_disturbed and run.order == last.order


def group_attempts(runs: Sequence[Run], allows_disturbed: bool) -> list[PlannedRun]:
    """Return the planned runs of a record, in the order in which they were measured."""
    planned: list[PlannedRun] = []
    for run in runs:
        if planned and planned[-1].is_repeated_by(run):
            planned[-1].attempts.append(run)
        else:
            planned.append(PlannedRun(run, allows_disturbed))
    return planned
