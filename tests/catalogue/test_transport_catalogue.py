"""Test the catalogue of transports and the suites against the flags and the scripts."""

import importlib
import shlex
from collections import defaultdict

import pytest

from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.catalogue.suites import SUITES
from dataflow.plan.command_line import make_options, parse_flags


def test_every_transport_of_the_catalogue_is_in_its_module_and_the_other_way_round():
    by_module = defaultdict(set)
    for transport in TRANSPORTS.values():
        by_module[transport.module].add(transport.function)
    for module, names in by_module.items():
        assert set(importlib.import_module(f"dataflow.{module}").TRANSPORTS) == names


@pytest.mark.parametrize("suite", SUITES)
def test_every_command_of_a_suite_can_be_read(suite):
    for part in SUITES[suite]:
        for command in part.commands:
            _, transport, *flags = shlex.split(command)
            options = make_options(transport, parse_flags(flags))
            assert all(point.transport == transport for point in options)
            assert not part.table.startswith(("sweep", "in-flight")) or options[0].table == part.table
