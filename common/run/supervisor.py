"""Carry out what a user asks of a script: check the flags, create the records, and measure runs in worker processes.

This module imports neither Ray nor torch. A worker is a new process, whose environment is set before it starts.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import NoReturn

from common.errors import RecordError, RunFailed
from common.main import run_main, tolerate_closed_output
from common.plan.command_line import parse_options
from common.plan.options import RESULTS
from common.plan.plan import Plan
from common.records import files
from common.records.schema import Record, Run
from common.run import host_noise
from common.run.monitor import Monitor
from common.runtimes.cleanup import RunFolder, remove_dead_runs
from common.transports.catalogue import RUNTIMES


def main(file: str, description: str, argv: Sequence[str] | None = None) -> NoReturn:
    """Run a script with these flags (None: those of the process), and end this process.

    Exit codes: 0, 1 (a run failed), 2 (rejected or skipped), 130 (interrupted).
    """
    run_main(_main, Path(file).name, description, argv)


def _main(script: str, description: str, argv: Sequence[str] | None) -> int:
    from common.run import batch  # which imports this module

    runtime = next(runtime.name for runtime in RUNTIMES.values() if runtime.script == script)
    points = parse_options(description, runtime, argv)
    options = points[0]
    for path in filter(None, (options.output, options.trace)):
        _check_new_file(path)
    planned = batch.resolve_points(runtime, points)
    output = options.output or files.default_path(RESULTS, runtime, planned[0][0].transport.name)
    if options.sweep:
        items = batch.make_items(planned, options.output or output.with_suffix(""))
    else:
        items = [batch.Item(planned[0], output)]
    if options.output or not items[0].skipped:  # without --output, nobody wants a record of what cannot be measured
        for item in items:
            files.create(item.path, item.record)
    if items[0].skipped:
        raise items[0].skipped
    from common.report import console  # imports numpy, for which the user of a wrong flag should not wait

    turns = [[item] for _ in range(options.runs) for item in items if not item.skipped]
    with tolerate_closed_output():
        console.print_flow(items[0].plan.requested_flow)
    codes = batch.measure_turns(turns)
    console.print_end([item.record for item in items], items[0].path.parent if options.sweep else items[0].path)
    return max(codes)


def _check_new_file(path: Path) -> None:
    """Raise RecordError if the file exists or its folder cannot be made."""
    try:
        if path.exists():
            raise RecordError(f"{path} exists: give another name, or move it away")
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot write {path} ({error.strerror}): give another name") from None


def measure_run(plan: Plan, record: Record, path: Path, order: int = 0, stop: Event | None = None) -> int:
    """Measure the plan once in a process of its own. The record gets the run and is saved, whatever happens.

    `order` is the position among all runs. The event `stop` interrupts the run, as Ctrl-C does. Return the exit code:
    0, 1 (the run failed) or 130 (it was interrupted).
    """
    started_at, pair = datetime.now(UTC).isoformat(timespec="seconds"), plan.turn.folder.name if plan.turn else ""
    record.runs.append(Run(started_at=started_at, order=order, pair=pair))
    files.save(path, record)
    code, throttled_before = 1, host_noise.throttled_seconds()
    try:
        remove_dead_runs()
        record.runs[-1].busy_cores = host_noise.busy_cores()
        with RunFolder() as run_folder:
            plan = replace(plan, run_folder=run_folder.folder, shared_folder=run_folder.shared)
            Monitor(plan, record, stop).follow_worker(run_folder)
        code = 0 if record.runs[-1].status == "ok" else 1
    except KeyboardInterrupt:
        run, code = record.runs[-1], 130
        run.status, run.reason = "failed", f"interrupted after {len(run.seconds)} timed iterations"
    except RunFailed as error:
        record.runs[-1].status, record.runs[-1].reason = "failed", str(error)
    finally:
        throttled_after = host_noise.throttled_seconds()
        if throttled_before is not None and throttled_after is not None:
            record.runs[-1].throttled_seconds = throttled_after - throttled_before
        files.save(path, record)
    return code
