"""Print how well choose_transport.py predicts times that it does not know: Markdown tables of errors and of choices.

    python3 -m evidence.predictions results/published

Each workload of the sweeps between the smallest and the largest one, and that of the table of all configurations, is
predicted without the records of this workload. Then the prediction is compared with these records.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from common.analysis import prediction
from common.analysis.prediction import Choice, Request
from common.analysis.result import Result
from common.errors import UsageError, run_main
from common.records import files
from common.records.schema import Workload
from common.report.markdown import render_table
from common.report.tables import Column, Table, format_significant, make_table

GOOD_ENOUGH = 1.10  # times the fastest: such a choice is right
TABLES = ("sweep-payload", "sweep-fields", "configurations")


class Case:
    """A workload, the predicted times of its configurations, and the measured ones."""

    def __init__(self, workload: Workload, copies: bool, results: Sequence[Result]) -> None:
        mine = [result for result in results if result.workload == workload]
        request = Request(workload, mine[0].flow, copies)
        self.workload, self.copies = workload, copies
        self.measured = {choice.name: choice.seconds for choice in prediction.rank(request, mine)[0]}
        choices, _ = prediction.rank(request, [result for result in results if result.workload != workload])
        self.predicted: list[Choice] = [choice for choice in choices if choice.name in self.measured]

    @property
    def errors(self) -> dict[str, float]:
        """Return predicted / measured - 1 by configuration."""
        return {choice.name: choice.seconds / self.measured[choice.name] - 1 for choice in self.predicted}

    def is_right(self, name: str) -> bool:
        """Return whether the configuration takes hardly longer than the fastest of those that were predicted."""
        fastest = min(self.measured[choice.name] for choice in self.predicted)
        return self.measured.get(name, float("inf")) <= GOOD_ENOUGH * fastest


def make_cases(results: Sequence[Result]) -> list[Case]:
    """Return a case per workload and kind of readers with at least two configurations to choose from."""
    workloads = dict.fromkeys(result.workload for result in results)
    cases = [Case(workload, copies, results) for workload in workloads for copies in (True, False)]
    return [case for case in cases if len(case.predicted) > 1]


def check_tables(folders: Sequence[Path]) -> list[Table]:
    """Return the table of errors and the table of choices; raise UsageError if the records have no sweep."""
    loaded = [Result((files.load(path),)) for path in files.record_files(folders)]
    results = [result for result in loaded if result.table in TABLES and result.status == "ok" and not result.traced]
    cases = make_cases(results)
    if not cases:
        raise UsageError("these records have no sweep over payload: measure python3 benchmark.py sweeps")
    by_workload = {(name, case.workload): error for case in cases for name, error in case.errors.items()}
    errors: dict[str, list[float]] = defaultdict(list)
    for (name, _), error in by_workload.items():
        errors[name].append(error)
    error_columns = [
        Column("configuration", lambda name: name),
        Column("predictions", lambda name: str(len(errors[name]))),
        Column("median error", lambda name: f"{median(map(abs, errors[name])):.0%}"),
        Column(
            "predictions with an error below 10 %", lambda name: str(sum(abs(error) < 0.1 for error in errors[name]))
        ),
        Column("lowest error", lambda name: f"{min(errors[name]):+.0%}"),
        Column("highest error", lambda name: f"{max(errors[name]):+.0%}"),
    ]
    choice_columns = [
        Column("readers", lambda copies: "own a copy" if copies else "may get a view"),
        Column("workloads", lambda copies: str(len(by_readers[copies]))),
        Column("right recommendations", lambda copies: str(count_right(by_readers[copies]))),
        Column("slowest recommendation / fastest", lambda copies: format_significant(largest_loss(by_readers[copies]))),
        Column("best single configuration", lambda copies: f"`{best_constant(by_readers[copies])}`", is_text=True),
        Column("right if it is always recommended",
               lambda copies: str(count_right(by_readers[copies], best_constant(by_readers[copies])))),
    ]  # fmt: skip
    by_readers: dict[bool, list[Case]] = {
        copies: [case for case in cases if case.copies is copies] for copies in (True, False)
    }
    return [make_table(sorted(errors), error_columns), make_table(list(by_readers), choice_columns)]


def best_constant(cases: Sequence[Case]) -> str:
    """Return the configuration that is right most often if it is always chosen, without any prediction."""
    names = dict.fromkeys(choice.name for case in cases for choice in case.predicted)
    return max(names, key=lambda name: count_right(cases, name))


def count_right(cases: Sequence[Case], constant: str = "") -> int:
    """Return in how many cases the predicted choice, or the constant one, is right."""
    return sum(case.is_right(constant or case.predicted[0].name) for case in cases)


def largest_loss(cases: Sequence[Case]) -> float:
    """Return the largest measured time of a choice, divided by the time of the fastest configuration."""
    return max(case.measured[case.predicted[0].name] / min(case.measured.values()) for case in cases)


def main(folders: Sequence[str]) -> int:
    print(*map(render_table, check_tables(list(map(Path, folders)))), sep="\n\n")
    return 0


if __name__ == "__main__":
    run_main(main, sys.argv[1:])
