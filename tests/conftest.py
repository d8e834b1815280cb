"""What the tests share: plans made in this process, and real runs of the scripts with what such a run leaves behind."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from common.plan.command_line import parse
from common.plan.plan import Plan
from common.record import files
from common.record.rows import RUNTIMES
from common.record.schema import Record, Run
from common.run.settle import settle
from common.runtime import gpus, workplace

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = {runtime: ROOT / script for runtime, script in RUNTIMES.items()}
KILOBYTES = ("--batch-size", "4", "--prompt-seq-len", "256")  # 8 to 40 KiB a message, 112 KiB a trip
RUN_SECONDS = 120  # until a run that hangs is killed; one takes about eight
MARK = "TEST_RUN"
SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_NAMES = ("data-flow-*", "torch_*")  # of runs' rings, and of tensors in shared memory


def pytest_collection_modifyitems(items):
    """Whatever starts participants is of the slower tier: `pytest -m "not runs"` leaves it out."""
    for item in items:
        if (ROOT / "tests" / "runs") in item.path.parents or "begin_run" in getattr(item, "fixturenames", ()):
            item.add_marker("runs")


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(gpus, "count", lambda: 0)


@pytest.fixture
def make_plan(no_gpu):
    """make_plan(runtime, *flags, **changes) -> the plan that a script's flags ask for on a machine without a GPU."""

    def make(runtime: str, *flags: str, **changes) -> Plan:
        plan, waived = settle(runtime, parse("", runtime, flags))
        assert waived is None, waived
        return replace(plan, **changes)

    return make


@dataclass
class Finished:
    """What a run said, and the file of its record."""

    code: int
    stdout: str
    stderr: str
    output: Path

    @property
    def record(self) -> Record:
        return files.load(self.output)

    @property
    def run(self) -> Run:
        (run,) = self.record.runs
        return run


class Script:
    """A script in a process of its own, whose descendants are known by a variable in their environment.

    Its temporary files go to a folder of its own, so that what other programs leave in /tmp does not count.
    """

    def __init__(self, script: Path, *flags: str, temporary: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # short: Ray puts sockets below it
        self.temporary = temporary or self.folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.output = self.folder / "record.json"
        self.orphans_before = orphaned_semaphores()
        self.shared_before = shared_memory_names()
        environment = os.environ | {MARK: self.folder.name, "TMPDIR": str(self.temporary)}
        command = [sys.executable, str(script), *flags, "--output", str(self.output)]
        self.process = subprocess.Popen(
            command, cwd=script.parent, env=environment, text=True,
            errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def wait_for_trips(self, count: int) -> None:
        """Until so many have ended, as the run's own board in shared memory says."""
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            for folder in self.folders():
                with suppress(OSError):
                    words = (folder / "board").read_bytes()[:24]
                    if len(words) == 24 and int.from_bytes(words[16:], sys.byteorder) >= count:
                        return
            time.sleep(0.02)
        raise AssertionError(f"the run ended before trip {count}: {self.process.stderr.read()}")

    def folders(self) -> list[Path]:
        """The run's own; another one may share TMPDIR."""
        owned = [path for path in self.temporary.glob("data-flow-*/owner")]
        return [path.parent for path in owned if owner_of(path.parent) == str(self.process.pid)]

    def guard(self) -> psutil.Process:
        """The supervisor's fork, which cleans up where the supervisor cannot."""
        supervisor = psutil.Process(self.process.pid)
        (guard,) = [child for child in supervisor.children() if child.cmdline() == supervisor.cmdline()]
        return guard

    def finish(self) -> Finished:
        try:
            stdout, stderr = self.process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return Finished(self.process.returncode, stdout, stderr, self.output)

    def living(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # gone, or not ours to look at
                if process.environ().get(MARK) == self.folder.name and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def kill(self) -> None:
        for process in self.living():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def leftovers(self, seconds: float = 10) -> list[str]:
        """Processes, semaphores, shared memory and temporary files of the run that are there after so long."""
        deadline = time.monotonic() + seconds
        while (found := self.left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def left(self) -> list[str]:
        shared = (orphaned_semaphores() - self.orphans_before) | (shared_memory_names() - self.shared_before)
        # Another run, which is under way beside this one, has a folder of the same name as long as it lives.
        places = (Path("/tmp").glob(place) for place in ("t-*/tmp/data-flow-*", "data-flow-*"))
        found = [path for paths in places for path in paths if path.parent != self.temporary]
        others = [path.name for path in found if owner_of(path) != str(self.process.pid)]
        return [
            *(f"process {process}" for process in self.living()),
            *(str(path) for path in shared if not any(name in path.name for name in others)),
            *map(str, self.temporary.iterdir()),
        ]


def owner_of(folder: Path) -> str:
    """The process id of the supervisor whose run's folder this is."""
    with suppress(OSError):  # it is being made, or removed
        return (folder / "owner").read_text().partition(" ")[0]
    return ""


def orphaned_semaphores() -> set[Path]:
    """Named semaphores of channels whose maker, named in the file's name, is no more."""
    found = set()
    for path in SHARED_MEMORY.glob("sem.*"):
        maker = path.name.removeprefix("sem.").lstrip("objhdr").split("-")[0]
        if not (maker.isdigit() and psutil.pid_exists(int(maker))):
            found.add(path)
    return found


def shared_memory_names() -> set[Path]:
    return {path for pattern in SHARED_MEMORY_NAMES for path in SHARED_MEMORY.glob(pattern)}


@pytest.fixture
def begin_run():
    """begin_run(script, *flags) -> Script. Whatever the test does, nothing of the run outlives it."""
    begun = []

    def begin(script: Path, *flags: str, **where: Path) -> Script:
        begun.append(Script(script, *flags, **where))
        return begun[-1]

    yield begin
    for script in begun:
        script.kill()
        script.process.communicate()
        for folder in script.temporary.glob("data-flow-*"):
            workplace.clean(folder)
        shutil.rmtree(script.folder)


@pytest.fixture
def run_script(begin_run):
    """run_script(script, *flags) -> Finished, having left nothing behind."""

    def run(script: Path, *flags: str) -> Finished:
        begun = begin_run(script, *flags)
        finished = begun.finish()
        assert begun.leftovers() == []
        return finished

    return run
