# SPDX-License-Identifier: Apache-2.0
"""Test how the age of the code of published numbers is counted and said."""

import os
import subprocess

import pytest
from conftest import ROOT

from dataflow.errors import RecordError
from dataflow.report import code_age
from dataflow.report.code_age import CodeAges, describe_age, load_ages, update_ages

DAY = "2026-02-03"


def git(folder, *arguments, **variables):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", *identity, "-C", str(folder), *arguments]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | variables
    )
    return done.stdout.strip()


def commit(folder, text, day=DAY):
    moment = f"{day}T12:00:00+00:00"
    words = ("commit", "-q", "--allow-empty", "-m", text)
    git(folder, *words, GIT_AUTHOR_DATE=moment, GIT_COMMITTER_DATE=moment)


@pytest.fixture
def repository(tmp_path):
    """Return a repository with four commits, and their hashes, the oldest first."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for number in range(4):
        commit(folder, str(number))
    return folder, git(folder, "rev-list", "--reverse", "HEAD").split()


def test_the_age_is_counted_up_to_the_commit_from_which_pages_are_published(repository, tmp_path):
    folder, commits = repository
    path = tmp_path / "ages.json"
    update_ages({commits[0], commits[2], "0" * 40}, folder, path)
    ages = load_ages(path)
    assert ages.counted_to == commits[3]
    assert ages.day == DAY
    assert ages.commits == {commits[0]: 3, commits[2]: 1, "0" * 40: None}


def test_pages_do_not_change_with_each_commit_but_with_the_day_of_a_publication(
    repository, tmp_path
):
    folder, commits = repository
    path = tmp_path / "ages.json"
    update_ages({commits[0]}, folder, path)
    before = path.read_bytes()
    commit(folder, "of the same day")
    update_ages({commits[0]}, folder, path, is_new_day_counted=True)
    assert path.read_bytes() == before
    commit(folder, "of another day", "2026-02-04")
    update_ages({commits[0]}, folder, path)  # into another folder, as tests do
    assert path.read_bytes() == before
    update_ages({commits[0]}, folder, path, is_new_day_counted=True)
    ages = load_ages(path)
    assert (ages.day, ages.commits) == ("2026-02-04", {commits[0]: 5})


def test_ages_are_counted_again_if_their_last_commit_was_rewritten(repository, tmp_path):
    folder, commits = repository
    path = tmp_path / "ages.json"
    update_ages({commits[0]}, folder, path)
    git(folder, "reset", "-q", "--hard", commits[2])
    commit(folder, "the fourth commit, rewritten")
    update_ages({commits[0]}, folder, path, is_new_day_counted=True)
    assert load_ages(path).counted_to == git(folder, "rev-parse", "HEAD") != commits[3]


def test_a_clone_without_history_can_publish_the_same_records_and_no_new_ones(repository, tmp_path):
    folder, commits = repository
    path = tmp_path / "ages.json"
    update_ages({commits[0], commits[2]}, folder, path)
    before = path.read_bytes()
    commit(folder, "of another day", "2026-02-04")
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{folder}", str(shallow))
    update_ages({commits[0]}, shallow, path, is_new_day_counted=True)
    assert path.read_bytes() == before
    with pytest.raises(RecordError, match=r"has no history, .* git fetch --unshallow"):
        update_ages({commits[3]}, shallow, path)


@pytest.mark.parametrize(
    ("commits", "words"),
    [
        (["old"], ", 7 commits old on 2026-02-03 (new)"),
        (["old", "new"], ", 0 to 7 commits old on 2026-02-03 (new)"),
        (["new"], ", the newest code on 2026-02-03 (new)"),
        (["lost"], ", code of unknown age"),
        (["mine"], ""),
    ],
)
def test_the_age_is_said_of_published_code_only(monkeypatch, commits, words):
    ages = CodeAges("new", DAY, {"old": 7, "new": 0, "lost": None})
    monkeypatch.setattr(code_age, "load_ages", lambda: ages)
    assert describe_age(commits) == words


def test_the_stored_ages_are_those_of_the_history():
    if code_age.run_git(ROOT, "rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this clone has no history")
    ages = load_ages()
    assert code_age.is_in_history(ages.counted_to, ROOT)
    for commit, count in ages.commits.items():
        assert code_age.count_commits(commit, ages.counted_to, ROOT) == count
