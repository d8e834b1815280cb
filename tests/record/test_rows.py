"""The catalogue against itself, the flags and the scripts."""

import importlib

import pytest

from common.plan.options import FIELDS
from common.record.rows import (
    BASELINE,
    CEILING,
    DEFAULTS,
    LADDER,
    ROWS,
    RUNTIMES,
    place,
    readers_hold_views,
    row_name,
    transports,
)

SUITES = {"benchmark", "quick", "stages", "hops"}
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@every_row
def test_the_row_above_stands_above_and_what_it_does_not_is_said(row):
    names = list(LADDER)
    assert bool(row.above) == bool(row.because)
    if row.above:
        assert names.index(row.above) < names.index(row.name)


@every_row
def test_a_row_is_a_transport_of_its_script_with_flags_that_make_rows(row):
    base = transports(row.runtime)[row.transport]
    known = {field.name for field in FIELDS if field.metadata["row"]}
    assert set(row.flags) <= known
    assert readers_hold_views(base, row.flags) == row.views
    assert bool(row.says) == (not row.flags)
    assert set(row.suites) <= SUITES
    assert all(trips > 0 for trips in row.suites.values())


def test_every_row_has_a_name_of_its_own_and_the_named_ones_are_there():
    assert len(LADDER) == len(ROWS)
    assert {BASELINE, CEILING} <= set(LADDER)
    for runtime, transport in DEFAULTS.items():
        assert transport is None or transport in transports(runtime)


def test_only_the_first_row_and_the_groups_of_gpus_have_none_above():
    assert [row.name for row in ROWS if not row.above] == ["store payload-queue", "rdt nccl", "torch nccl-one-gpu"]


def test_a_name_says_the_flags_with_their_values():
    assert row_name("graph", "mapped", {"copy_out": True, "in_flight": 4}) == "graph mapped --copy-out --in-flight 4"


def test_a_row_with_flags_that_are_no_rung_follows_the_rung_without_them():
    assert place("graph shm") < place("graph shm --threads 2") < place("graph shm --huge-pages")
    assert place("graph pigeon")[0] == len(LADDER)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_transport_of_the_catalogue_is_a_function_of_its_script_and_the_other_way_round(runtime):
    script = importlib.import_module(RUNTIMES[runtime].removesuffix(".py"))
    functions = {name for name in vars(script) if name.startswith("by_")}
    assert functions == {"by_" + name.replace("-", "_") for name in transports(runtime)}
