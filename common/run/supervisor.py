"""What a user starts: it reads the flags, refuses, keeps the record, and ends whatever it started.

It imports neither Ray nor torch: a run happens in a worker, a fresh process whose environment is set before it begins.
"""

import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from common.errors import RecordError, RunFailed, SuiteError, UsageError, Waived
from common.flow.catalogue import build_flow
from common.machine import quiet
from common.plan.command_line import parse
from common.plan.options import RESULTS
from common.plan.plan import Plan
from common.record import files
from common.record.environment import describe_environment
from common.record.rows import RUNTIMES
from common.record.schema import Record, Run, edges_of
from common.run.settle import settle
from common.run.watch import Watch
from common.runtime.workplace import Workplace, sweep
from common.text.pipe import outlast_reader
from common.trace import chrome


def main(file: str, description: str, argv: Sequence[str] | None = None) -> NoReturn:
    """Run a script's row with these flags (None: those of the process), and end this process.

    Exit codes: 0, 1 (failed, or wrong bytes), 2 (refused or waived), 130 (interrupted).
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    outlast_reader()
    try:
        sys.exit(_main(Path(file).name, description, argv))
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("error: interrupted before anything was measured", file=sys.stderr)
        sys.exit(130)


def _main(script: str, description: str, argv: Sequence[str] | None) -> int:
    runtime = next(name for name, file in RUNTIMES.items() if file == script)
    options = parse(description, runtime, argv)
    if options.output is not None and os.path.exists(options.output):  # False where it cannot be known
        raise RecordError(f"{options.output} exists: give --output another name, or move it away")
    plan, waived = settle(runtime, options)
    output = options.output or files.default_path(RESULTS, runtime, plan.row.transport)
    record = plan.record()
    if waived is not None:
        if options.output:  # whoever names a record wants one; nobody else needs to clean up after a refusal
            add_waived(record, waived)
            files.create(output, record)
        raise waived
    if options.trace:
        try:
            options.trace.parent.mkdir(parents=True, exist_ok=True)
            options.trace.touch(exist_ok=False)
        except OSError as error:
            raise UsageError(f"cannot write {options.trace} ({error.strerror}): give --trace another name") from None
    try:
        files.create(output, record)
    except RecordError:
        if options.trace:
            options.trace.unlink()
        raise
    from common.text import screen  # with numpy, which those who are refused need not wait for

    codes: list[int] = []
    for turn in range(options.runs):
        started = (lambda run: screen.print_start(plan.asked, options.threads, run)) if not turn else lambda _: None
        codes.append(add_runs(plan, record, output, started, turn))
        if options.runs > 1 and not options.sweep:
            screen.print_point(record.runs[-1], {"run": turn + 1})
        if 130 in codes:
            break
    write_trace(plan, record)
    screen.print_end(record, output)
    return max(codes)


def write_trace(plan: Plan, record: Record) -> None:
    """--trace: the last run's spans as a file of their own; none where it has none."""
    if plan.options.trace and record.runs[-1].spans:
        chrome.write_chrome(plan.options.trace, record.runs[-1], record.edges)
    elif plan.options.trace:
        plan.options.trace.unlink(missing_ok=True)


def add_waived(record: Record, reason: Waived) -> None:
    """A run that this machine cannot do, and why."""
    record.environments["0"] = describe_environment()
    record.runs.append(Run(started_at=now(), status="waived", reason=str(reason)))


def add_runs(
    plan: Plan, record: Record, output: Path, started: Callable[[Run], None] = lambda _: None, order: int = 0
) -> int:
    """Measure the plan once more, at each point of its sweep if it has one; what does not fit is waived there.

    Returns:
        The exit code: the worst of the points'.
    """
    if not plan.options.sweep:
        return add_run(plan, record, output, started, order)
    codes: list[int] = []
    points = plan.options.points
    for options in points[len(record.runs) % len(points) :]:  # after those that an interrupted turn has measured
        try:
            point, waived = settle(plan.row.runtime, options)
            if waived:
                raise waived
        except UsageError as refused:
            run = Run(started_at=now(), order=order, at=options.at, status="waived", reason=str(refused))
            with suppress(ValueError):  # there may be no such flow
                run.edges = edges_of(build_flow(options.flow, options.sizes, options.message))
            record.runs.append(run)
            files.save(output, record)
        else:
            codes.append(add_run(point, record, output, started if not codes else lambda _: None, order))
        _print_point(record.runs[-1])
        if 130 in codes:
            break
    return max(codes, default=2)


def _print_point(run: Run) -> None:
    from common.text import screen

    screen.print_point(run, run.at)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def add_run(
    plan: Plan, record: Record, output: Path, started: Callable[[Run], None] = lambda _: None, order: int = 0
) -> int:
    """Measure the plan once more, in a process of its own; the record has the run whatever happens.

    Args:
        started: is called with the run once its ceiling is known.

    Returns:
        The exit code.
    """
    steps = run_steps(plan, record, output, started, order)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def run_steps(
    plan: Plan, record: Record, output: Path, started: Callable[[Run], None], order: int, alternation: str = ""
) -> Generator[None, None, int]:
    """The same as a look at the worker each; closed before the end, it is interrupted.

    Args:
        alternation: shared by the rows with which its trips alternate.
    """
    edges = plan.edges if plan.options.sweep else []
    run = Run(started_at=now(), order=order, at=plan.options.at, edges=edges, alternation=alternation)
    record.runs.append(run)
    files.save(output, record)
    held_back = quiet.throttled_seconds()
    try:
        sweep()
        run.busy_cores = quiet.busy_cores()
        yield  # rows that alternate all look before the first of them begins
        with Workplace() as place:
            yield from Watch(replace(plan, folder=place.folder, shared=place.shared), record, run, started).steps()
        return 0 if run.status == "ok" else 1
    except (KeyboardInterrupt, GeneratorExit):
        run.status, run.reason = "failed", f"interrupted after {len(run.seconds)} timed trips"
        return 130
    except RunFailed as failed:  # a row with which it alternates
        run.status, run.reason = "failed", str(failed)
        return 1
    finally:
        if held_back is not None and (now_held_back := quiet.throttled_seconds()) is not None:
            run.throttled_seconds = now_held_back - held_back
        files.save(output, record)
