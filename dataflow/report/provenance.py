# SPDX-License-Identifier: Apache-2.0
"""Say where numbers come from: machines, boots, runs that count and that do not, commits, and the age of their code."""

from collections.abc import Iterable, Sequence
from typing import Any

from dataflow.analysis.attempts import PlannedRun
from dataflow.analysis.result import Result
from dataflow.records.machine import machine_line
from dataflow.report.code_age import describe_age
from dataflow.report.tables import format_range

Environment = dict[str, Any]
SHORT = 4  # characters of a hash, as in the headers of machines
MANY = 3  # commits: more are counted, not listed


def provenance(results: Sequence[Result], campaigns: Sequence[str] = ()) -> list[str]:
    """Return the machines and versions, and last the boots, the runs, and the commits, with the days or campaigns."""
    environments: list[Environment] = []
    for result in results:
        environments += result.environments
    machines = describe_machines(environments, is_shared=bool(campaigns))
    boots = count_different(environments, "boot")
    counts = format_range([len(result.run_seconds) for result in results], digits=9)
    notes = describe_left_out(results)
    if campaigns:
        kernels = count_different(environments, "kernel")
        # In the order of the campaigns.
        commits = describe_commits(environments)
        return [
            *machines,
            f"Campaigns: {len(campaigns)} ({', '.join(campaigns)}), boots: {boots}, kernels: {kernels}. "
            f"Runs per configuration and campaign: {counts}. {notes}{describe_clock_code(environments)}"
            f"Measured with {commits}.",
        ]
    days = sorted(days_of(results))
    commits = describe_commits(sorted(environments, key=commit_of))
    return [
        *machines,
        f"Boots: {boots}. Runs per configuration: {counts}. {notes}"
        f"Measured on {' and '.join(days)}, {commits}.",
    ]


def days_of(results: Sequence[Result]) -> set[str]:
    """Return the days on which the runs began that are shown."""
    days = set()
    for result in results:
        for run in result.shown_runs:
            date, _, _ = run.started_at.partition("T")
            days.add(date)
    return days


def describe_machines(environments: Sequence[Environment], is_shared: bool) -> list[str]:
    """Return a line per machine; of campaigns (`is_shared`), one for those that differ by processor and kernel only."""
    shared = {}
    if is_shared:
        for key in ("cpu_model", "kernel"):
            values = {str(environment.get(key)) for environment in environments}
            shared[key] = " or ".join(sorted(values))
    return sorted({machine_line(environment | shared) for environment in environments})


def count_different(environments: Sequence[Environment], key: str) -> int:
    return len({environment.get(key) for environment in environments})


def commit_of(environment: Environment) -> str:
    return environment.get("git_commit") or "unknown"


def describe_clock_code(environments: Sequence[Environment]) -> str:
    """Return which boots measured with different code inside the clock; "" if all have the same.

    A configuration runs a part of the code, and has a hash of that part in its records. So boots with the same code
    share several hashes.
    """
    boots_of_codes: dict[str, dict[str, None]] = {}
    for environment in environments:
        code = str(environment.get("clock_code"))
        boot = str(environment.get("boot"))
        boots = boots_of_codes.setdefault(code, {})
        boots[boot] = None
    groups = join_overlapping(boots_of_codes.values())
    if len(groups) < 2:
        return ""
    versions = "; ".join(f"one on {list_boots(boots)}" for boots in groups)
    return f"Versions of the code inside the clock (hashes are in the records): {versions}. "


def join_overlapping(sets: Iterable[dict[str, None]]) -> list[dict[str, None]]:
    """Join sets that share an element, directly or through a third set.

    A joined set stands where the first of its parts stood. Sets are dicts without values, which keep their order.
    """
    groups: list[dict[str, None]] = []
    for new in sets:
        overlapping = [group for group in groups if group.keys() & new.keys()]
        if not overlapping:
            groups.append(dict(new))
            continue
        first, *others = overlapping
        for other in others:
            first.update(other)
            groups.remove(other)
        first.update(new)
    return groups


def list_boots(boots: Iterable[str]) -> str:
    return ", ".join(boot[:SHORT] for boot in boots)


def describe_commits(environments: Sequence[Environment]) -> str:
    """Return the commits in the order of the environments, and how old the code is if that is known.

    Many commits are counted, unless one had changes that are not committed.
    """
    names: dict[str, None] = {}
    commits = set()
    is_clean = True
    for environment in environments:
        commit = commit_of(environment)
        commits.add(commit)
        name = commit[:10]
        if environment.get("git_dirty"):
            is_clean = False
            name += " with changes that are not committed"
        names[name] = None
    if is_clean and len(names) > MANY:
        listed = f"{len(names)} commits (their hashes are in the records)"
    else:
        listed = f"commit {', '.join(names)}"
    return listed + describe_age(commits)


def describe_left_out(results: Sequence[Result]) -> str:
    """Return how many runs were repeated, left out, or counted although they were disturbed.

    A run and its repetitions are one run. So each count is out of the runs that were asked for and did not fail.
    """
    planned: list[PlannedRun] = []
    for result in results:
        planned += result.ok_planned_runs
    left_out = 0
    counted = 0
    unsettled = 0
    kept_unsettled = 0
    for result in results:
        disturbed = sum(run.is_disturbed for run in result.ok_planned_runs)
        shown = sum(bool(run.disturbance) for run in result.shown_runs)
        counted += shown
        left_out += disturbed - shown
        if result.keeps_memory:
            kept_unsettled += sum(run.settled is False for run in result.shown_runs)
        else:
            unsettled += count_unsettled(result)
    counts = {
        "Measured again, because they were disturbed": sum(run.is_repeated for run in planned),
        "Counted, although they were disturbed": counted,
        "Left out, because they were disturbed": left_out,
        "Left out, because their times had not settled": unsettled,
        "Counted with kept memory, although they had not settled": kept_unsettled,
    }
    texts = [f"{text}: {count} of {len(planned)} runs. " for text, count in counts.items() if count]
    return "".join(texts)


def count_unsettled(result: Result) -> int:
    """Return how many runs have a quiet attempt, but none whose times had settled."""
    count = 0
    for planned in result.ok_planned_runs:
        attempts = planned.quiet_attempts or planned.ok_attempts[-1:]
        is_judged = planned.quiet_attempts or result.allows_disturbed
        if is_judged and all(run.settled is False for run in attempts):
            count += 1
    return count
