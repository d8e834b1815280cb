"""Say how old the code is that measured a number, in commits.

A page cannot count up to the commit that contains it, so it counts up to the newest commit that a published record has.
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


class CodeAges(msgspec.Struct):
    """How many commits lie between each commit of a published record and the newest one; None: not in the history."""

    newest: str
    commits: dict[str, int | None]


@cache
def load_ages(path: Path = CODE_AGES) -> CodeAges:
    """Return the stored counts; none if nothing was published yet."""
    if not path.exists():
        return CodeAges("", {})
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
    if max(counts) == 0:
        return ", the newest code that a published record has"
    span = format_range(counts, digits=9)
    unit = "commit" if span == "1" else "commits"
    return f", code of {span} {unit} before the newest published record ({ages.newest[:10]})"


def update_ages(commits: Collection[str], repository: Path, path: Path = CODE_AGES) -> None:
    """Store the age of each commit, if one is new; raise RecordError if the history is not here."""
    if set(commits) <= load_ages(path).commits.keys():
        return
    if run_git(repository, "rev-parse", "--is-shallow-repository") != "false":
        raise RecordError(
            f"{repository} has no history, so the age of new records is unknown: git fetch --unshallow"
        )
    newest = find_newest(commits, repository)
    counts = {commit: count_commits(commit, newest, repository) for commit in sorted(commits)}
    ages = CodeAges(newest, counts)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(ages), indent=1) + b"\n")
    load_ages.cache_clear()


def find_newest(commits: Collection[str], repository: Path) -> str:
    """Return the commit with the longest history; raise RecordError if none is in the repository."""
    lengths: dict[str, int] = {}
    for commit in commits:
        length = run_git(repository, "rev-list", "--count", commit)
        if length is not None:
            lengths[commit] = int(length)
    if not lengths:
        raise RecordError(f"{repository} has no commit of the records: publish from its own clone")
    return max(lengths, key=lambda commit: lengths[commit])


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
