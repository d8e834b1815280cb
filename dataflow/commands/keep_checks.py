# SPDX-License-Identifier: Apache-2.0
"""Write down what `predict --check --state TEXT` has found, so that the pages can show it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from common.origin import ask_git, hash_boot
from common.record import save
from dataflow.analysis.kept_checks import CHECKS, CheckedPrediction, CheckFile
from dataflow.analysis.kept_predictions import keep
from dataflow.analysis.prediction import Check, MachineSpeed
from dataflow.analysis.stored_costs import shorten
from dataflow.commands.machine import prepare
from dataflow.units import GB


def keep_checks(state: str, runs: int, speed: MachineSpeed, checks: Sequence[Check]) -> Path:
    """Keep what was predicted and measured of a machine in this state, and return the file.

    Raise RecordError if it cannot be written.
    """
    checked = []
    for check in checks:
        predicted = keep(check.prediction)
        one = CheckedPrediction(
            predicted=predicted,
            measured_seconds=check.measured_seconds,
            measured_faults=check.measured_faults,
        )
        checked.append(one)
    file = CheckFile(
        state=state,
        checked_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S+00:00}",
        boot=hash_boot(),
        commit=ask_git("rev-parse", "HEAD"),
        cores=speed.cores,
        copy_gbps=shorten(speed.rate(speed.cores) / GB),
        fault_seconds=shorten(speed.fault_seconds),
        runs=runs,
        checked=checked,
    )
    path = CHECKS / f"{file.checked_at[:19].replace(':', '')}-{file.boot[:4]}.json"
    prepare(path)
    save(path, file)
    return path
