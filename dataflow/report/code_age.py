# SPDX-License-Identifier: Apache-2.0
"""Say how old the code is that measured a number, in commits.

A page cannot count up to the commit that contains it, and no page should change with each commit. So publishing counts
up to the commit from which it was called, and a page says the day of this commit: "383 commits old on 2026-11-27".
The counts are stored beside the records, because a clone without history (--depth 1) cannot count.
"""

import subprocess
from collections.abc import Collection
from functools import cache
from pathlib import Path

import msgspec

from dataflow.errors import RecordError
from dataflow.plan.options import RESULTS
from dataflow.report.tables import format_range

CODE_AGES = RESULTS / "evidence" / "code-ages.json"
DIGITS = 9  # of a count: all


class CodeAges(msgspec.Struct):
    """How many commits there are after each commit of a published record, up to one; None: not in the history."""

    counted_to: str
    day: str  # of that commit
    commits: dict[str, int | None]


@cache
def load_ages(path: Path = CODE_AGES) -> CodeAges:
    """Return the stored counts; none if nothing was published yet."""
    if not path.exists():
        return CodeAges("", "", {})
    return msgspec.json.decode(path.read_bytes(), type=CodeAges)


def describe_age(commits: Collection[str]) -> str:
    """Return how old the code of these commits is, to be written after them; "" if no page has their numbers."""
    ages = load_ages()
    published = [commit for commit in commits if commit in ages.commits]
    counts = [count for commit in published if (count := ages.commits[commit]) is not None]
    if not published:
        return ""
    if not counts:
        return ", code of unknown age"
    on_day = f"on {ages.day} ({ages.counted_to[:10]})"
    if max(counts) == 0:
        return f", the newest code {on_day}"
    span = format_range(counts, DIGITS)
    unit = "commit" if span == "1" else "commits"
    return f", {span} {unit} old {on_day}"


def update_ages(
    commits: Collection[str],
    repository: Path,
    path: Path = CODE_AGES,
    is_new_day_counted: bool = False,
) -> None:
    """Store the age of each commit, if one is new; raise RecordError if the history is not here.

    is_new_day_counted: count again if the newest commit here is of another day than the stored counts, or if the
    commit up to which they were counted was rewritten since.
    """
    stored = load_ages(path)
    is_complete = set(commits) <= stored.commits.keys()
    has_history = run_git(repository, "rev-parse", "--is-shallow-repository") == "false"
    if is_complete and not (is_new_day_counted and has_history):
        return
    newest = run_git(repository, "log", "-1", "--format=%H %cs")
    if not has_history or newest is None:
        raise RecordError(
            f"{repository} has no history, so the age of new records is unknown: git fetch --unshallow"
        )
    counted_to, day = newest.split()
    if is_complete and day == stored.day and is_in_history(stored.counted_to, repository):
        return
    counts = {commit: count_commits(commit, counted_to, repository) for commit in sorted(commits)}
    ages = CodeAges(counted_to, day, counts)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(ages), indent=1) + b"\n")
    load_ages.cache_clear()


def is_in_history(commit: str, repository: Path) -> bool:
    """Return whether the checked-out commit descends from this one; a commit that was rewritten may still exist."""
    return run_git(repository, "merge-base", "--is-ancestor", commit, "HEAD") is not None


def count_commits(commit: str, newest: str, repository: Path) -> int | None:
    """Return how many commits lie between two; None if the first one is not in the history."""
    count = run_git(repository, "rev-list", "--count", f"{commit}..{newest}")
    return None if count is None else int(count)


def run_git(repository: Path, *arguments: str) -> str | None:
    """Return what git prints; None if it fails."""
    command = ("git", "-C", str(repository), *arguments)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
