# SPDX-License-Identifier: Apache-2.0
"""Keep what the parts of studies measure in each group of iterations, and let each study make its result of it."""

from typing import Any

import msgspec

from dataflow.plan.plan import Plan
from dataflow.records.schema import Run
from dataflow.study import load, studies
from dataflow.workers.worker_group import WorkerGroup


class StudyResults:
    """What the parts of each study have measured: by worker, for each group, and whether it was timed."""

    def __init__(self, plan: Plan, workers: WorkerGroup) -> None:
        self.plan = plan
        self.workers = workers
        self.groups: dict[str, list[tuple[dict[str, Any], bool]]] = {}
        for part in plan.parts:
            self.groups[part] = []

    def end_group(self, last: int, is_timed: bool) -> None:
        """Let the workers change their parameters after iteration `last`, and keep what their parts have measured."""
        if not self.plan.parts and not self.plan.task_flow.has_parameters:
            return
        measured = self.workers.call("end_group", last)
        for name, groups in self.groups.items():
            of_part = {}
            for worker, by_part in measured.items():
                of_part[worker] = by_part[name]
            groups.append((of_part, is_timed))

    def collect(self, run: Run) -> list[str | None]:
        """Set what the studies have measured, and return for each why it says that the run has failed, or None.

        A study without `collect` is left out.
        """
        failures = []
        for name, groups in self.groups.items():
            function = studies()[name].collect
            if function:
                collect = load(name, function)
                measured, failure = collect(self.plan, groups, self.workers.driver_seconds)
                run.measured[name] = msgspec.to_builtins(measured)
                failures.append(failure)
        return failures
