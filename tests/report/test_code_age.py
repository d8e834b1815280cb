"""Test how the age of the code of published numbers is counted and said."""

import subprocess

import pytest
from conftest import ROOT

from dataflow.errors import RecordError
from dataflow.report import code_age
from dataflow.report.code_age import CodeAges, describe_age, load_ages, update_ages


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """Return a repository with four commits, and their hashes, the oldest first."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for number in range(4):
        git(folder, "commit", "-q", "--allow-empty", "-m", str(number))
    return folder, git(folder, "rev-list", "--reverse", "HEAD").split()


def test_the_age_is_counted_up_to_the_newest_commit_of_a_record(repository, tmp_path):
    folder, commits = repository
    path = tmp_path / "ages.json"
    update_ages({commits[0], commits[2], "0" * 40}, folder, path)
    ages = load_ages(path)
    assert ages.newest == commits[2]
    assert ages.commits == {commits[0]: 2, commits[2]: 0, "0" * 40: None}


def test_a_clone_without_history_can_publish_the_same_records_and_no_new_ones(repository, tmp_path):
    folder, commits = repository
    path = tmp_path / "ages.json"
    update_ages({commits[0], commits[2]}, folder, path)
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{folder}", str(shallow))
    update_ages({commits[0]}, shallow, path)
    with pytest.raises(RecordError, match=r"has no history, .* git fetch --unshallow"):
        update_ages({commits[3]}, shallow, path)


@pytest.mark.parametrize(
    ("commits", "words"),
    [
        (["old"], ", code of 7 commits before the newest published record (new)"),
        (["old", "new"], ", code of 0 to 7 commits before the newest published record (new)"),
        (["new"], ", the newest code that a published record has"),
        (["lost"], ", code of unknown age"),
        (["mine"], ""),
    ],
)
def test_the_age_is_said_of_published_code_only(monkeypatch, commits, words):
    ages = CodeAges("new", {"old": 7, "new": 0, "lost": None})
    monkeypatch.setattr(code_age, "load_ages", lambda: ages)
    assert describe_age(commits) == words


def test_the_stored_ages_are_those_of_the_history():
    if code_age.run_git(ROOT, "rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("this clone has no history")
    ages = load_ages()
    for commit, count in ages.commits.items():
        assert code_age.count_commits(commit, ages.newest, ROOT) == count
