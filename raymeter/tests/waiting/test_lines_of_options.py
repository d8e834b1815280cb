# SPDX-License-Identifier: Apache-2.0
"""The line of an option is one that sets it for the task that is submitted, not for Ray or for another task."""

import os
from pathlib import Path

import pytest
from raymeter.profile.submitted_with import line_of_option

DECORATED = """
@ray.remote(num_cpus=4)
def work(): ...

def main():
    ray.init(num_cpus=8)
    ray.get(work.remote())
"""
CHAIN = """
def main():
    other.options(num_cpus=2).remote()
    work.options(
        num_cpus=4
    ).remote()
"""
ASSIGNED = """
def main():
    wide = work.options(num_cpus=4)
    other = ray.remote(num_cpus=3)
    ray.get(wide.remote())
"""
SECOND_WINS = """
@ray.remote(num_cpus=4)
def work(): ...

def main():
    work.options(num_cpus=2).options(name="a").remote()
"""
PARAMETER = """
@ray.remote(num_cpus=4)
def work(): ...

def main(work):
    work.remote()
"""
TWO_TASKS = """
@ray.remote(num_cpus=4)
def work(): ...

@ray.remote(num_cpus=2)
def other(): ...

ray.get([work.remote(), other.remote()])
"""
UNKNOWN = """
ray.init(num_cpus=8)
options = {"num_cpus": 4}
work.options(**options).remote()
"""
NONE = """
def main():
    ray.init(num_cpus=8)
    ray.get(work.remote())
"""


def find_line(folder: Path, text: str) -> int:
    """Return the line that is found for the last submission of a program; 0 if none."""
    path = folder / "program.py"
    path.write_text(text)
    os.utime(path, (0, 0))
    lines = text.splitlines()
    number = max(
        number for number, line in enumerate(lines, 1) if ".remote(" in line and "@" not in line
    )
    found = line_of_option(f"{path}:{number}", 1.0, "num_cpus")
    return int(found.rpartition(":")[2] or 0)


@pytest.mark.parametrize(("text", "line"), [
    (DECORATED, 2), (CHAIN, 4), (ASSIGNED, 3), (SECOND_WINS, 6), (PARAMETER, 0), (TWO_TASKS, 0), (UNKNOWN, 0),
    (NONE, 0),
])  # fmt: skip
def test_the_line_that_sets_an_option_of_a_task_is_found(text, line, tmp_path):
    assert find_line(tmp_path, text) == line
