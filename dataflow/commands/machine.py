# SPDX-License-Identifier: Apache-2.0
"""Measure this machine without Ray, in at most 20 seconds: what it takes to copy bytes, and to get memory for them.

    python3 -m dataflow machine --output mine.json
    taskset -c 0 python3 -m dataflow machine       one core of it

The samples are kept in results/machines/, from which `predict` reads them.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.origin import hash_boot
from common.record import only_measurement, save
from dataflow.errors import RecordError
from dataflow.plan.command_line import VerbParser
from dataflow.plan.options import RESULTS

MACHINES = RESULTS / "machines"


def parse_command(argv: Sequence[str]) -> argparse.Namespace:
    parser = VerbParser(__doc__, "python3 -m dataflow machine [flags]")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="file of the samples (default: a new name in results/machines/)",
    )
    return parser.parse_all(argv)


def new_path(measured_at: str, cores: int) -> Path:
    """Return a path for a measurement: its time to the second, the boot and the number of cores."""
    time = measured_at[:19].replace(":", "")
    return MACHINES / f"{time}-{hash_boot()[:4]}-{cores}.json"


def prepare(path: Path) -> None:
    """Make the folder of a new file; raise RecordError if that can't be done, or if the file exists."""
    try:
        is_there = path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot write {path} ({error.strerror}): give another name") from None
    if is_there:
        raise RecordError(f"{path} exists: give another name, or move it away")


def keep_measurement(path: Path | None) -> tuple[Path, Any]:
    """Measure this machine, and save the samples; return their file and them. None: a new name in results/machines/.

    It waits until other measurements on this machine have ended. Raise RecordError if the file can't be written.
    """
    # These imports take time, and a wrong flag should not wait.
    from dataflow.machine.measurement import measure_machine

    with only_measurement():
        machine = measure_machine()
    if path is None:
        path = new_path(machine.measured_at, machine.cores)
        prepare(path)
    save(path, machine)
    return path, machine


def main(argv: Sequence[str]) -> int:
    """Measure, save the samples, and print them with their spread. Raise RecordError if the file can't be written."""
    path = parse_command(argv).output
    if path is not None:
        prepare(path)
    path, machine = keep_measurement(path)
    print_machine(machine)
    print(f"samples: {path}")
    return 0


def print_machine(machine: Any) -> None:
    from dataflow.report.machine_tables import copies_table, costs_table, facts_of
    from dataflow.report.render import print_table, print_text

    print_text(*facts_of(machine.environment))
    print_table(copies_table(machine))
    print_table(costs_table(machine))
