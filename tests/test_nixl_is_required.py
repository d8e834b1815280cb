# SPDX-License-Identifier: Apache-2.0
"""Tests that need NIXL are skipped with a reason if it is not installed, and fail if it is installed and broken."""

import sys

import marks_and_order
import pytest


def test_tests_are_skipped_with_a_reason_without_nixl(monkeypatch):
    monkeypatch.setattr(marks_and_order, "find_spec", lambda name: None)
    with pytest.raises(pytest.skip.Exception, match="NIXL is not installed: make says why"):
        marks_and_order.require_nixl()


@pytest.mark.parametrize(
    ("line", "error"),
    [("raise ImportError('no backend')", ImportError), ("import nixl_cu0", ModuleNotFoundError)],
)
def test_tests_fail_if_nixl_is_installed_and_cannot_be_imported(monkeypatch, tmp_path, line, error):
    """pytest.importorskip would skip them if a module of NIXL is missing."""
    (tmp_path / "nixl.py").write_text(line)
    for name in [name for name in sys.modules if name.partition(".")[0] == "nixl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error):
        marks_and_order.require_nixl()
