"""What a user starts: it reads the flags, refuses, keeps the record, and ends whatever it started.

It imports neither Ray nor torch: a run happens in a worker, a fresh process whose environment is set before it begins.
"""

import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from common.errors import RecordError, SuiteError, UsageError, Waived
from common.plan.options import RESULTS, parse
from common.plan.plan import Plan
from common.record import files
from common.record.environment import describe_environment
from common.record.rows import RUNTIMES
from common.record.schema import Record, Run
from common.run import blame
from common.run.settle import settle
from common.runtime.settings import variables
from common.runtime.workplace import MARK, Workplace, sweep
from common.trace import chrome
from common.trace.board import ENDING, STARTING, Board
from common.view import screen

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120  # until participants that do not come up are given up, where --timeout is not longer
POLL_SECONDS = 0.2  # rarely: on few cores, whoever wakes up takes one from a trip
GRACE_SECONDS = 2  # for a worker to say what it knows of a role that died


def main(file: str, description: str, argv: Sequence[str] | None = None) -> NoReturn:
    """Run a script's row with these flags (None: those of the process), and end this process.

    Exit codes: 0, 1 (failed, or wrong bytes), 2 (refused or waived), 130 (interrupted).
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
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
    code = add_run(plan, record, output, lambda run: screen.print_start(plan.asked, options.threads, run))
    write_trace(plan, record)
    screen.print_end(record, output)
    return code


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
    run = Run(started_at=now(), order=order)
    record.runs.append(run)
    files.save(output, record)
    sweep()
    try:
        with Workplace() as place:
            _Supervisor(replace(plan, folder=place.folder, shared=place.shared), record, run, started).watch()
        return 0 if run.status == "ok" else 1
    except KeyboardInterrupt:
        run.status, run.reason = "failed", f"interrupted after {len(run.seconds)} timed trips"
        return 130
    finally:
        files.save(output, record)


class _Supervisor:
    """One worker, from its start to its end."""

    def __init__(self, plan: Plan, record: Record, run: Run, started: Callable[[Run], None]) -> None:
        self.plan, self.record, self.run, self.started = plan, record, run, started
        self.board = Board.create(plan.folder, plan.participants, plan.trips)
        self.known: dict[str, Any] = {}
        self.read_bytes = 0
        self.progress = self.changed = None

    def watch(self) -> None:
        """Let the worker run; what it reports, and the samples on the board, go into the run."""
        (self.plan.folder / "plan").write_bytes(pickle.dumps(self.plan))
        environment = os.environ | variables(self.plan) | {MARK: self.plan.folder.name, "TMPDIR": str(self.plan.folder)}
        worker = subprocess.Popen(
            [sys.executable, "-m", "common.run.worker", str(self.plan.folder)], cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), start_new_session=True,
        )  # fmt: skip
        try:
            problem = self._wait(worker)
            if problem:
                self.run.status, self.run.reason = "failed", f"{self._when()}: {problem}"
        finally:
            self._collect_samples()

    def _wait(self, worker: subprocess.Popen) -> str | None:
        """Until the worker has ended, or must be; what went wrong, if anything."""
        ended = os.pidfd_open(worker.pid)
        bar, doomed = _progress_bar(self.plan), None
        try:
            while True:
                readable, _, _ = select.select([ended], [], [], POLL_SECONDS)
                gone = [] if self.known.get("nodes") else blame.dead(self.board)
                if not self._read_report():
                    return "the driver's process wrote what is no report"
                bar.update(self.board.progress[2] - bar.n)
                if readable:
                    return self._end_of(worker, gone)
                if "failure" in self.known or gone:
                    doomed = doomed or time.monotonic()
                if doomed and time.monotonic() - doomed > GRACE_SECONDS:
                    return self._explain(gone)
                if overdue := self._overdue():
                    return overdue
        finally:
            os.close(ended)
            bar.close()

    def _end_of(self, worker: subprocess.Popen, gone: list[str]) -> str | None:
        code = worker.wait()
        if self.known.get("finished") and code == 0:
            return None if self.known["status"] == "ok" else self._verdict()
        if "failure" in self.known:
            return self._explain([name for name in gone if name != "driver"])
        return blame.end_of(code)

    def _verdict(self) -> None:
        """The worker's own: bytes that were wrong, or took another path."""
        self.run.status, self.run.reason = "failed", self.known["reason"]

    def _explain(self, gone: list[str]) -> str:
        """Who failed: what a role said before it ended, who died, or what the driver met."""
        words, failure = blame.last_words(self.plan.folder), self.known.get("failure")
        if words or (failure and " raised " in failure):
            return words or str(failure)
        if gone:
            return blame.sentence(self.board, self.plan.flow, self._number(), gone)
        return str(failure)

    def _overdue(self) -> str | None:
        """Whether nothing has moved for too long, and who is behind that."""
        progress = (self.board.progress, self.read_bytes)
        if progress != self.progress:
            self.progress, self.changed = progress, time.monotonic()
        seconds = self.plan.options.timeout
        starting = self.board.phase == STARTING
        limit = max(seconds, START_SECONDS) if starting or self.board.phase == ENDING else seconds
        if time.monotonic() - self.changed <= limit:
            return None
        if starting:
            return f"did not start within {limit:g} s"
        who = blame.sentence(self.board, self.plan.flow, self._number(), blame.dead(self.board))
        return f"did not end within {limit:g} s (--timeout); {who}"

    def _number(self) -> int:
        """The trip that is under way, or was last."""
        _, began, ended = self.board.progress
        return min(began, ended + 1)

    def _when(self) -> str:
        if self.board.phase == STARTING:
            return "before the first trip"
        return "after the last trip" if self.board.phase == ENDING else f"trip {self._number()}"

    def _read_report(self) -> bool:
        """Take over what the worker has reported since; False where that is not what it writes."""
        path = self.plan.folder / "report"
        if not path.exists() or path.stat().st_size == self.read_bytes:
            return True
        with path.open("rb") as report:
            report.seek(self.read_bytes)
            text = report.read()
        complete = text[: text.rfind(b"\n") + 1]
        self.read_bytes += len(complete)
        try:
            for line in complete.splitlines():
                self._take(msgspec.json.decode(line, type=dict[str, Any]))
        except (msgspec.DecodeError, msgspec.ValidationError):
            return False
        return True

    def _take(self, fields: dict[str, Any]) -> None:
        self.known |= fields
        own = {name: fields[name] for name in fields.keys() & set(Run.__struct_fields__)}
        new = msgspec.convert({"started_at": "", **own}, Run)
        for name in own:
            setattr(self.run, name, getattr(new, name))
        if "status" in own and own["status"] == "ok":
            self.run.status, self.run.reason = "failed", "the run was killed"  # until its end is seen
        if "environment" in fields:
            self.record.environments["0"] = fields["environment"]
            self.started(self.run)
        if "nodes" in fields:
            self.record.row.layout.nodes = fields["nodes"]
        if fields.get("finished"):
            self.run.status, self.run.reason = self.known["status"], self.known["reason"]

    def _collect_samples(self) -> None:
        """What the board has of the trips; a trip that ended is never lost."""
        options, board = self.plan.options, self.board
        found = list(takewhile(bool, map(board.trip, range(1, 1 + self.plan.trips))))
        if found:
            self.run.first_seconds = found[0][1] - found[0][0]
        timed = found[1 + options.warmup :]
        self.run.seconds = [end - start for start, end in timed]
        whole = [timed[n : n + options.episode] for n in range(0, len(timed), options.episode)]
        self.run.episode_seconds = [trips[-1][1] - trips[0][0] for trips in whole]


def _progress_bar(plan: Plan) -> Any:
    """A bar with the time left on a terminal, nothing in a pipe."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # a thread that would wake up during trips
    return tqdm(total=plan.trips, unit="trip", desc=plan.row.transport, disable=None, leave=False)
