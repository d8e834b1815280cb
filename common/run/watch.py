"""One worker from its start to its end, and what is known of it whatever happens."""

import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from common.flow.flow import DRIVER
from common.plan.plan import Place, Plan
from common.record.schema import Record, Run
from common.run import blame
from common.runtime.settings import variables
from common.runtime.workplace import MARK
from common.trace.board import ENDING, STARTING, Board

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120  # until participants that do not come up are given up, where --timeout is not longer
POLL_SECONDS = 0.2  # rarely: on few cores, whoever wakes up takes one from a trip
GRACE_SECONDS = 2  # for a worker to say what it knows of a role that died


class Watch:
    """The worker of a plan whose folders are there; it ends with the workplace.

    Args:
        run: takes what the worker reports, and the samples on the board.
        started: is called with the run once its ceiling is known.
    """

    def __init__(self, plan: Plan, record: Record, run: Run, started: Callable[[Run], None]) -> None:
        self.plan, self.record, self.run, self.started = plan, record, run, started
        self.board = Board.create(plan.folder, plan.participants, plan.trips)
        self.known: dict[str, Any] = {}  # everything that was reported
        self.read_bytes = 0
        self.progress: Any = None
        self.moved = time.monotonic()

    def steps(self) -> Iterator[None]:
        """A look at the worker each, until it has ended; the run says in the end how."""
        (self.plan.folder / "plan").write_bytes(pickle.dumps(self.plan))
        folder, root = str(self.plan.folder), self.plan.checkout or ROOT
        python = root / ".venv" / "bin" / "python"
        interpreter = str(python) if self.plan.checkout and python.exists() else sys.executable
        worker = subprocess.Popen(
            [interpreter, "-m", "common.run.worker", folder], cwd=root, start_new_session=True,
            env=os.environ | variables(self.plan) | {MARK: self.plan.folder.name, "TMPDIR": folder},
            stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(),
        )  # fmt: skip
        try:
            problem = yield from self._wait(worker)
        finally:
            self._collect_samples()
        if problem:
            self.run.status, self.run.reason = "failed", f"{self._when()}: {problem}"
        else:
            self.run.status, self.run.reason = self.known["status"], self.known["reason"]

    def _wait(self, worker: subprocess.Popen) -> Generator[None, None, str | None]:
        """Until the worker has ended, or must be; what went wrong, if anything."""
        handle, bar, doomed = os.pidfd_open(worker.pid), None, None
        gone: list[str] = []
        try:
            while True:
                ended = bool(select.select([handle], [], [], POLL_SECONDS)[0])
                # The driver, and all that live in its process, are the worker itself; who has done its work may go.
                inside = [name for name, pid in self.board.processes().items() if pid == worker.pid]
                dead = [name for name in blame.dead(self.board) if name not in inside]
                if not self._read_report():
                    return "the driver's process wrote what is no report"
                # Who went first; others may follow it. What was reported before they went is read by now.
                if not gone and "nodes" not in self.known:
                    gone = dead
                if self.board.progress[2]:  # what stands before the first trip is said by now
                    bar = _progress_bar(self.plan) if bar is None else bar
                    bar.update(self.board.progress[2] - bar.n)
                if "failure" in self.known or gone:
                    doomed = doomed or time.monotonic() + GRACE_SECONDS
                if ended and "finished" in self.known:
                    return None
                if ended and "failure" not in self.known:
                    return blame.end_of(worker.wait())
                if ended or (doomed and time.monotonic() > doomed):
                    return self._explain(gone)
                if overdue := self._overdue():
                    return overdue
                yield
        finally:
            os.close(handle)
            if bar is not None:
                bar.close()

    def _explain(self, gone: list[str]) -> str:
        """What a role said before it ended, who died, or what the driver met."""
        failure, words = str(self.known.get("failure", "")), blame.last_words(self.plan.folder)
        silent = [name for name in gone if name not in words]
        if silent and " raised " not in failure:
            return blame.sentence(self.board, self.plan.flow, self._number(), silent, self._actors())
        return next(iter(words.values()), failure)

    def _overdue(self) -> str | None:
        """Whether nothing has moved for too long, and who is behind that."""
        progress = (self.board.progress, self.read_bytes)
        if progress != self.progress or (self.plan.turn and self.plan.turn.waits):
            self.progress, self.moved = progress, time.monotonic()
        limit = self.plan.options.timeout
        if self.board.phase in (STARTING, ENDING):
            limit = max(limit, START_SECONDS)
        if time.monotonic() - self.moved <= limit:
            return None
        if self.board.phase == STARTING:
            return f"nobody was ready within {limit:g} s"
        who = blame.sentence(self.board, self.plan.flow, self._number(), blame.dead(self.board), self._actors())
        return f"did not end within {limit:g} s (--timeout); {who}"

    def _actors(self) -> dict[str, Place]:
        return {name: place for name, place in self.plan.places.items() if name != DRIVER}

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
        lines = text[: text.rfind(b"\n") + 1]
        self.read_bytes += len(lines)
        try:
            for line in lines.splitlines():
                self._take(msgspec.json.decode(line, type=dict[str, Any]))
        except (msgspec.DecodeError, msgspec.ValidationError):
            return False
        return True

    def _take(self, fields: dict[str, Any]) -> None:
        self.known |= fields
        own = {name: fields[name] for name in fields.keys() & set(Run.__struct_fields__) - {"status", "reason"}}
        checked = msgspec.convert({"started_at": "", **own}, Run)
        for name in own:
            setattr(self.run, name, getattr(checked, name))
        if "environment" in fields:
            self.record.environments["0"] = fields["environment"]
            self.started(self.run)
        self.record.row.layout.nodes = fields.get("nodes", self.record.row.layout.nodes)

    def _collect_samples(self) -> None:
        """What the board has of the trips; one that ended is never lost."""
        options = self.plan.options
        trips = list(takewhile(lambda trip: trip[1] > 0, map(self.board.trip, range(1, 1 + self.plan.trips))))
        timed = trips[1 + options.warmup :]
        length = options.trips_in_a_row
        whole = [timed[n : n + length] for n in range(0, len(timed), length)]
        self.run.first_seconds = trips[0][1] - trips[0][0] if trips else None
        # To the nanosecond, of which the clock's ticks are; more digits would only fill records.
        self.run.seconds = [round(end - start, 9) for start, end in timed]
        self.run.episode_seconds = [round(episode[-1][1] - episode[0][0], 9) for episode in whole]


def _progress_bar(plan: Plan) -> Any:
    """A bar with the time left on a terminal, nothing in a pipe."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # a thread that would wake up during trips
    total = None if plan.options.duration else plan.trips
    return tqdm(total=total, unit="trip", desc=plan.row.transport, disable=None, leave=False)
