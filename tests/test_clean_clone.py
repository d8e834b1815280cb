# SPDX-License-Identifier: Apache-2.0
"""Test that git ignores what the documented commands write into a clone."""

import subprocess

import pytest
from project_files import ROOT

# The charts lie beside the records, so in folders that git knows.
WRITTEN = (
    "results/benchmark_result.svg",
    "results/published/headline.svg",
    "results/published/report.html",
    "results/published/rdt/rdt.svg",
    "results/campaigns/2026-11-26T0904-937f/headline.svg",
    "results/evidence/agreement/benchmark_result.svg",
    "results/run-demo/queue.json",
)


def run_git(*words: str) -> str:
    """Return what git prints. check-ignore has exit code 1 if git ignores none of the files."""
    command = ["git", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this folder is no git repository")
def test_git_ignores_what_documented_commands_write():
    ignored = run_git("check-ignore", "--", *WRITTEN).splitlines()
    assert ignored == list(WRITTEN)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this folder is no git repository")
def test_git_ignores_no_record_and_no_chart_that_is_published():
    """Otherwise, `git add` would leave out a new one."""
    published = run_git("ls-files", "results", "img").splitlines()
    assert "results/published/rdt/records.jsonl.gz" in published
    assert "img/benchmark_result.svg" in published
    # Without --no-index, git ignores no file that it knows already.
    assert run_git("check-ignore", "--no-index", "--", *published) == ""
