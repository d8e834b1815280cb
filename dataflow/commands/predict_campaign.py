# SPDX-License-Identifier: Apache-2.0
"""Keep what a campaign will measure on this machine, as it is predicted before.

    python3 -m dataflow predict --campaign         then commit the file, and run `make campaign`

The pages compare both as soon as the campaign is there.
"""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.origin import ask_git, hash_boot
from common.record import save
from dataflow.analysis.kept_predictions import PREDICTIONS, PredictionFile, predict_campaign
from dataflow.analysis.prediction import speed_of_samples
from dataflow.analysis.stored_costs import COSTS, CostFile, load_costs, shorten
from dataflow.commands.machine import keep_measurement, prepare
from dataflow.errors import UsageError
from dataflow.machine.samples import MachineSamples, load_machine
from dataflow.plan.command_line import VerbParser
from dataflow.report.render import print_text
from dataflow.units import GB

OTHERS = ("check", "nodes", "preset", "copy_gbps")  # what else a prediction is for


def add_options(parser: VerbParser) -> None:
    parser.add_argument(
        "--campaign",
        action="store_true",
        help="measure this machine, and keep the predicted times of all configurations of a campaign in "
        "results/evidence/predictions/",
    )


def check_options(arguments: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """Raise UsageError for flags that ask for something else than --campaign does."""
    if not arguments.campaign:
        return
    asked = [name for name in OTHERS if getattr(arguments, name)]
    names = [*asked, *given]
    if names:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UsageError(f"--campaign predicts all messages of a campaign here: leave {flags} out")


def main(path: Path | None) -> int:
    """Keep the predictions, and print where. `path` has samples of this machine; None: it is measured now.

    Raise UsageError for samples of another boot, and RecordError for a file that cannot be read or written.
    """
    stored = load_costs(COSTS)
    if path is None:
        print_text("Measuring this machine takes about 15 seconds.")
        _, machine = keep_measurement(None)
    else:
        machine = load_machine(path)
    if machine.environment.get("boot") != hash_boot():
        raise UsageError(
            f"--machine {path}: it was measured before this machine has started: measure it again"
        )
    file = make_file(machine, stored)
    target = PREDICTIONS / f"{file.predicted_at[:16].replace(':', '')}-{file.boot[:4]}.json"
    prepare(target)
    save(target, file)
    count = len(file.predictions)
    print_text(f"{count} predictions: {target}", "Commit it, and then run `make campaign`.")
    return 0


def make_file(machine: MachineSamples, stored: CostFile) -> PredictionFile:
    largest = max(cost.iteration_bytes for cost in stored.costs)
    speed = speed_of_samples(machine, "this machine", largest)
    return PredictionFile(
        predicted_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S+00:00}",
        boot=hash_boot(),
        commit=ask_git("rev-parse", "HEAD"),
        cores=machine.cores,
        copy_gbps=shorten(speed.rate(machine.cores) / GB),
        fault_seconds=shorten(speed.fault_seconds),
        fitted_boots=[fitted.boot for fitted in stored.machines],
        predictions=predict_campaign(machine, stored),
    )
