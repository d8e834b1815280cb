# SPDX-License-Identifier: Apache-2.0
"""The causes that raymeter knows, one module per kind. Each has `find(program, steps)`, which returns findings."""

from raymeter.causes import (
    calls,
    captured,
    data_batches,
    event_loop,
    forwarded,
    independent_calls,
    items,
    memory,
    middling,
    new_actors,
    new_environments,
    one_call,
    one_value,
    order,
    pickled,
    polls,
    references,
    repeated,
    returned_puts,
    rounds,
    unused_cpus,
    wait_one,
    waiting,
)
from raymeter.findings import Finding
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps

KINDS = (
    repeated,
    forwarded,
    pickled,
    one_value,
    data_batches,
    captured,
    waiting,
    independent_calls,
    new_environments,
    new_actors,
    unused_cpus,
    one_call,
    order,
    rounds,
    wait_one,
    polls,
    event_loop,
    items,
    references,
    returned_puts,
    calls,
    middling,
    memory,
)


def find_all(program: Program, steps: Steps) -> list[Finding]:
    """Return what every kind of cause finds, the most work first."""
    findings = [finding for kind in KINDS for finding in kind.find(program, steps)]
    findings.sort(key=lambda finding: finding.seconds, reverse=True)
    return findings
