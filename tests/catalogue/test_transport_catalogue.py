"""Test the catalogue of transports and the suites against the flags and the scripts."""

import importlib
import shlex
from collections import defaultdict

import pytest

from dataflow.catalogue import catalogue
from dataflow.catalogue.catalogue import CONFIGURATIONS, RUNTIMES, TRANSPORTS, VARIANTS, transports_of
from dataflow.catalogue.suites import SUITES
from dataflow.plan.command_line import make_options, parse_flags
from dataflow.plan.options import FLAGS


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_variant_extends_one_that_stands_before_it_and_has_only_flags_of_configurations(variant):
    assert bool(variant.compared_with) == bool(variant.explanation)
    names = list(CONFIGURATIONS)
    is_known = " ".join(variant.compared_with.split()[:2]) in TRANSPORTS  # the study of the other one may be missing
    assert not is_known or names.index(variant.compared_with) < names.index(variant.name)
    assert set(variant.flags) <= {field.name for field in FLAGS if field.metadata["configuration"]}


def test_every_configuration_has_a_name_of_its_own():
    assert len(CONFIGURATIONS) == len(VARIANTS)
    assert {catalogue.BASELINE, catalogue.REFERENCE} <= set(CONFIGURATIONS)
    without = [variant.name for variant in VARIANTS if not variant.compared_with]
    assert without == ["store payload-queue", "rdt nccl", "torch nccl-one-gpu"]  # the slowest, and the first on GPUs


@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=lambda runtime: runtime.name)
def test_every_transport_of_the_catalogue_is_in_its_module_and_the_other_way_round(runtime):
    by_module = defaultdict(set)
    for name, transport in transports_of(runtime.name).items():
        by_module[transport.module].add(name)
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
