# SPDX-License-Identifier: Apache-2.0
"""Load the plugins with the fixtures of all tests, and give tests their helpers: a module for each subject."""

import pytest

pytest_plugins = [
    "marks_and_order",
    "plan_fixtures",
    "leftovers",
    "script_runs",
    "shared_cluster",
]
# So that a failed assert of a helper shows its values. It must be said before they are imported.
pytest.register_assert_rewrite("project_files", *pytest_plugins)

from leftovers import LEAVE_SECONDS, descendants
from marks_and_order import MISSING_STUDIES, require_nixl
from plan_fixtures import KILOBYTES, parse_options, reject_options
from project_files import ROOT, copy_project
from script_runs import RUN_SECONDS, run_words

__all__ = [
    "KILOBYTES",
    "LEAVE_SECONDS",
    "ROOT",
    "RUN_SECONDS",
    "copy_project",
    "descendants",
    "parse_options",
    "reject_options",
    "require_nixl",
    "run_words",
]
collect_ignore = [f"studies/{name}" for name in MISSING_STUDIES]
