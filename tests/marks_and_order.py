# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: mark tests, skip those that cannot or need not run, and let two workers begin with long ones."""

from importlib import import_module
from importlib.util import find_spec

import pytest
from project_files import ROOT

from dataflow.study import studies

STUDIES = {
    "chatlearn",
    "detached_ppo",
    "external_systems",
    "model_loading",
    "pipeline",
    "weights",
    "zero",
}
MISSING_STUDIES = STUDIES - studies().keys()
NO_NIXL = "NIXL is not installed: make says why when it makes .venv"


def require_nixl():
    """Skip a test or a module if NIXL is not installed. If it is, and cannot be imported, the test fails."""
    if not find_spec("nixl"):
        pytest.skip(NO_NIXL, allow_module_level=True)
    import_module("nixl._api")


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also run the slow and the long tests")
    parser.addoption("--slow", action="store_true", help="also run the slow tests")


def pytest_collection_modifyitems(config, items):
    """Mark tests that start workers, so that `pytest -m "not runs"` leaves them out; skip some without a flag."""
    for item in items:
        needed = set()
        for mark in item.iter_markers("study"):
            needed.update(mark.args or STUDIES)
        if needed & MISSING_STUDIES:
            item.add_marker(pytest.mark.skip(reason="its study is not there"))
        skip_without_flag(item, config)
        begins_run = "begin_run" in getattr(item, "fixturenames", ())
        if begins_run or ROOT / "tests" / "runs" in item.path.parents:
            item.add_marker("runs")
    items[:] = order_for_two(items)


def skip_without_flag(item, config):
    """Skip a slow or a long test, unless a flag asks for it."""
    everything = config.getoption("--all")
    if item.get_closest_marker("long") and not everything:
        item.add_marker(pytest.mark.skip(reason="it takes long: make test ARGS=--all runs it"))
    if item.get_closest_marker("slow") and not (everything or config.getoption("--slow")):
        item.add_marker(pytest.mark.skip(reason="it is slow: make test-slow runs it"))


def order_for_two(items):
    """Return the tests in an order in which two workers begin with the long ones, so that none is the last.

    With `--dist worksteal`, each worker gets a half. Then one that has nothing to do takes tests from the end of the
    other's list, but never its last ones. Tests that may join the shared cluster are in one half: it starts once.
    """
    long = [item for item in items if is_long(item)]
    short = [item for item in items if not is_long(item)]
    on_cluster = [item for item in long if may_join_cluster(item)]
    alone = [item for item in long if not may_join_cluster(item)]
    fill = max(0, len(items) // 2 - len(on_cluster))
    return on_cluster + short[:fill] + alone + short[fill:]


def is_long(item):
    """Return whether a test starts workers, or takes as long as one that does. One that is skipped takes no time."""
    marks = [name for name in ("runs", "busy", "skip") if item.get_closest_marker(name)]
    return bool(marks) and "skip" not in marks


def may_join_cluster(item):
    return not {"cluster", "join_cluster"}.isdisjoint(getattr(item, "fixturenames", ()))
