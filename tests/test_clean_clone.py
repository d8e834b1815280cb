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


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this folder is no git repository")
def test_git_ignores_what_documented_commands_write():
    done = subprocess.run(
        ["git", "check-ignore", "--", *WRITTEN],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.stdout.splitlines() == list(WRITTEN)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this folder is no git repository")
def test_git_knows_the_records_and_charts_that_are_published():
    published = ["results/published/headline/records.jsonl.gz", "img/benchmark_result.svg"]
    command = ["git", "check-ignore", "--", *published]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    assert done.stdout == ""
