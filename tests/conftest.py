"""What the tests share: runs of the real scripts in processes of their own, and what such a run leaves behind."""

import os
import runpy
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from common.flow.demo_sizes import Sizes
from common.flow.flow import online_dpo
from common.record import files as records
from common.run import options as command_line
from common.runtime import processes
from common.runtime import ray_cluster as cluster

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted(ROOT.glob("*simulate_chat_learn_data_flow.py"))
KILOBYTES = ("--batch-size", "4", "--prompt-seq-len", "256")  # 8 to 40 KiB a message, 112 KiB a trip
RUN_SECONDS = 120  # until a run that hangs is killed; one takes about ten
MARK = "SIMULATE_TEST_RUN"
SHARED_MEMORY_NAMES = ("data-flow-*", "torch_*")  # of mapped segments, and of tensors in shared memory


def arguments(*flags: str) -> Namespace:
    """What a script makes of these flags on a machine without a GPU."""
    parsed = command_line.parse_arguments("", ("test",), "test", flags)
    parsed.device = "cpu"
    return parsed


@dataclass
class Finished:
    """What a run said, and the file of its record."""

    code: int
    stdout: str
    stderr: str
    output: Path

    @property
    def record(self) -> dict[str, Any]:
        return records.load(self.output)

    @property
    def case(self) -> dict[str, Any]:
        (case,) = self.record["cases"]
        return case


class Run:
    """A script in a process of its own, whose descendants are known by a variable in their environment.

    Its temporary files go to a folder of its own, so that what other programs leave in /tmp does not count.
    """

    def __init__(self, script: Path, *flags: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # short: Ray puts sockets below it
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.output = self.folder / "record.json"
        self.orphans_before = orphaned_semaphores()
        self.shared_before = shared_memory_names()
        environment = os.environ | {MARK: self.folder.name, "TMPDIR": str(self.temporary)}
        command = [sys.executable, str(script), *flags, "--output", str(self.output)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def wait_for_line(self, wanted: str) -> None:
        """Read stdout until a line says `wanted`; the timeout of `finish` does not hold here, pytest's does."""
        for line in self.process.stdout:
            if line.strip() == wanted:
                return
        raise AssertionError(f"the run ended before it said {wanted!r}: {self.process.stderr.read()}")

    def role_process(self, role: str) -> psutil.Process:
        """The process of a role, among the descendants of this run alone."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        for process in children:
            if "".join(process.cmdline()[:1]).split(".")[0] == f"ray::{role}":
                return process
        # Plain processes bear no name; they are started in the flow's order.
        spawned = [process for process in children if "--multiprocessing-fork" in process.cmdline()]
        names = [role.name for role in online_dpo(Sizes()).roles]
        assert len(spawned) == len(names), f"this run has no process of {role}"
        return sorted(spawned, key=lambda process: (process.create_time(), process.pid))[names.index(role)]

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
            try:
                if process.environ().get(MARK) == self.folder.name and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue  # gone, or not ours to look at
        return found

    def kill(self) -> None:
        for process in self.living():
            process.kill()

    def leftovers(self) -> list[str]:
        """Processes, semaphores, shared memory and temporary files of the run that are there when it has ended."""
        deadline = time.monotonic() + 10  # a process that was killed, or another run beside this one, needs a moment
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _left(self) -> list[str]:
        return [
            *(f"process {process}" for process in self.living()),
            *map(str, orphaned_semaphores() - self.orphans_before),
            *map(str, self.temporary.iterdir()),
            *map(str, shared_memory_names() - self.shared_before),
        ]


def orphaned_semaphores() -> set[Path]:
    """Named semaphores of channels whose maker, named in the file's name, is no more."""
    found = set()
    for path in cluster.SHARED_MEMORY.glob("sem.*"):
        maker = path.name.removeprefix("sem.").lstrip("objhdr").split("-")[0]
        if not (maker.isdigit() and psutil.pid_exists(int(maker))):
            found.add(path)
    return found


def shared_memory_names() -> set[Path]:
    return {path for pattern in SHARED_MEMORY_NAMES for path in cluster.SHARED_MEMORY.glob(pattern)}


@pytest.fixture
def begin_run():
    """begin_run(script, *flags) -> Run. Whatever the test does, nothing of the run outlives it."""
    runs = []

    def begin(script: Path, *flags: str) -> Run:
        runs.append(Run(script, *flags))
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()
        run.process.communicate()
        subprocess.run(["rm", "-rf", run.folder], check=True)


@pytest.fixture
def run_script(begin_run):
    """run_script(script, *flags) -> Finished, having left nothing behind."""

    def run(script: Path, *flags: str) -> Finished:
        begun = begin_run(script, *flags)
        finished = begun.finish()
        assert begun.leftovers() == []
        return finished

    return run


@pytest.fixture
def write_script(tmp_path):
    """write_script(module, source) -> the path of a script that is `module` with changes.

    `source` may define wrap_send(send), which gives the transport's new send, wrap_role(role_class), which gives
    the roles' new class, and do anything else before the case is run. Where roles are plain processes, their class
    must be one of the module, not of a function: they import the script again.
    """

    def write(module: str, source: str) -> Path:
        path = tmp_path / f"changed_{module}.py"
        path.write_text(CHANGED.format(root=str(ROOT), module=module, source=source))
        return path

    return write


CHANGED = """\
import sys
from contextlib import contextmanager
from dataclasses import replace

sys.path.insert(0, {root!r})
import {module} as script
from common.run import worker as case


def wrap_send(send):
    return send


def wrap_role(role_class):
    return role_class


{source}

@contextmanager
def connect(arguments, flow, start):
    with script.connect(arguments, flow, lambda role_class, *rest: start(wrap_role(role_class), *rest)) as wiring:
        yield replace(wiring, send=wrap_send(wiring.send))


if __name__ == "__main__":
    sys.exit(case.run(replace(script.SCRIPT, connect=connect)))
"""


@pytest.fixture
def run_main(monkeypatch, capsys, tmp_path):
    """run_main(script, *flags) -> (exit code, stdout, stderr), in this process; it fails where roles would start."""

    def refuse(*_: Any) -> None:
        pytest.fail("the script went on to start its roles")

    def run(script: Path, *flags: str) -> tuple[int, str, str]:
        monkeypatch.setattr(command_line, "RESULTS", tmp_path / "results")
        for runtime in (cluster, processes):
            monkeypatch.setattr(runtime, "configure", lambda _: None)  # it changes this process's environment
            monkeypatch.setattr(runtime, "connect", refuse)
        monkeypatch.setattr(sys, "argv", [str(script), *flags])
        with pytest.raises(SystemExit) as exited:
            runpy.run_path(str(script), run_name="__main__")
        captured = capsys.readouterr()
        return exited.value.code, captured.out, captured.err

    return run
