# SPDX-License-Identifier: Apache-2.0
"""Options and plans from the flags of a script, on a machine without a GPU."""

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dataflow.catalogue.catalogue import TRANSPORTS, Transport
from dataflow.errors import UsageError
from dataflow.plan import validate
from dataflow.plan.command_line import make_options, parse_flags
from dataflow.plan.options import Options
from dataflow.plan.plan import Plan, resolve_plan

DEFAULT_TRANSPORTS = {
    "store": "driver-queue",
    "graph": "shm",
    "rdt": "gloo",
    "torch": "gloo",
    "peers": "zmq-ipc",
}
# 8 to 40 KiB per message, 112 KiB per iteration.
KILOBYTES = ("--batch-size", "4", "--prompt-seq-len", "256")


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(validate, "count_gpus", lambda: 0)


@pytest.fixture
def make_plan(no_gpu):
    """make_plan(runtime, *flags, **changes) -> the plan of a script's flags on a machine without a GPU."""

    def make(runtime: str, *flags: str, **changes) -> Plan:
        (options,) = parse_options(runtime, *flags)
        plan, skipped = resolve_plan(transport_of(runtime, options), options)
        assert skipped is None, skipped
        return replace(plan, **changes)

    return make


def split_transport(runtime: str, flags: Sequence[str]) -> tuple[str, list[str]]:
    """Return the value of --transport, or the default of these tests, and the other flags."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--transport", default=DEFAULT_TRANSPORTS[runtime])
    known, words = parser.parse_known_args([*map(str, flags)])
    return known.transport, words


def parse_options(runtime: str, *flags: str) -> list[Options]:
    """Return the options of the configuration of --transport with the other flags."""
    transport, words = split_transport(runtime, flags)
    return make_options(TRANSPORTS[f"{runtime} {transport}"], parse_flags(words))


def transport_of(runtime: str, options: Options) -> Transport:
    return TRANSPORTS[f"{runtime} {options.transport}"]


def reject_options(runtime: str, *flags: str) -> str:
    """Return the error of these flags, which has one line."""
    with pytest.raises(UsageError) as error:
        for options in parse_options(runtime, *flags):
            resolve_plan(transport_of(runtime, options), options)
    assert "\n" not in str(error.value)
    return str(error.value)
