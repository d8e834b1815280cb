# SPDX-License-Identifier: Apache-2.0
"""Test that each source file names the project's licence, so that a file that is copied alone still has it."""

import subprocess

import pytest
from project_files import ROOT

LINE = "# SPDX-License-Identifier: Apache-2.0"
WITH_LICENCE = ("*.py", "*.sh", "*Makefile", ".ci/run")
DONE = subprocess.run(
    ["git", "ls-files", "-z", "--", *WITH_LICENCE],
    cwd=ROOT, capture_output=True, check=False, text=True,
)  # fmt: skip
# Without those that are deleted and not yet committed.
FILES = [name for name in DONE.stdout.split("\0") if name and (ROOT / name).exists()]


def names_licence(text):
    """Return whether one of the first three lines, beside #! and a docstring, is the licence."""
    return LINE in text.splitlines()[:3]


@pytest.mark.skipif(not FILES, reason="this folder is no git repository")
def test_each_source_file_names_the_licence():
    assert {"dataflow/__main__.py", "Makefile", "raymeter/tests/scoreboard.py"} <= {*FILES}
    missing = [name for name in FILES if not names_licence((ROOT / name).read_text())]
    assert missing == [], f"write {LINE} into the first line"


def test_it_is_the_licence_of_the_project():
    text = " ".join((ROOT / "LICENSE").read_text().split())
    assert text.startswith("Apache License Version 2.0, January 2004")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{LINE}\n", True),
        (f"#!/bin/sh\n{LINE}\nls\n", True),
        ('"""Do it."""\n\nimport os\n', False),
        (f"\n\n\n{LINE}\n", False),
        (f"{LINE}-only\n", False),
    ],
)
def test_a_file_without_the_line_is_found(text, expected):
    assert names_licence(text) == expected
