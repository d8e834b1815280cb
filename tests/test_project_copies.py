# SPDX-License-Identifier: Apache-2.0
"""Test copies of the project: code that is added to a module replaces its names before a script calls main."""

import subprocess
import sys

import pytest
from project_files import add_at_end, copy_project

ADDITION = "def name():\n    return 'added'\n"
MODULE = "def name():\n    return 'old'\n"
GUARDS = ['if __name__ == "__main__":', "if (__name__ ==\n    '__main__'):"]


@pytest.mark.parametrize("guard", GUARDS)
def test_added_code_is_before_the_call_of_main(guard):
    text = add_at_end(f"{MODULE}{guard}\n    result = name()\n", ADDITION)
    names = {"__name__": "__main__"}
    exec(text, names)
    assert names["result"] == "added"


def test_added_code_is_at_the_end_of_a_module():
    names = {}
    exec(add_at_end(f"{MODULE}if True:\n    old = name()\n", ADDITION), names)
    assert (names["old"], names["name"]()) == ("old", "added")


def test_a_copy_has_the_added_code_and_the_rest(tmp_path):
    copy_project(tmp_path, ("common/sizes.py", "MODELS = ('one',)"))
    show = "from common import sizes; print(sizes.MODELS, len(sizes.EDGES), sizes.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", show], cwd=tmp_path, capture_output=True, check=True, text=True
    )
    assert done.stdout == f"('one',) 5 {tmp_path}/common/sizes.py\n"
