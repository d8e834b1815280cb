# SPDX-License-Identifier: Apache-2.0
"""Runs of scripts and verbs as their user starts them, with a check of what they leave behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from leftovers import LEAVE_SECONDS, descendants, shared_memory_files
from plan_fixtures import DEFAULT_TRANSPORTS, split_transport
from project_files import ROOT

from dataflow.records import files
from dataflow.records.schema import Record, Run
from dataflow.workers import cleanup

RUN_SECONDS = 250  # a run that takes longer is killed; on an idle machine it takes about ten


@dataclass
class Finished:
    """What a run printed, and the file of its record."""

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


def run_words(runtime: str | Path, *flags: str) -> list[str]:
    """Return the words after `python3` that measure the configuration of --transport, or call a verb or a file."""
    if runtime not in DEFAULT_TRANSPORTS:
        return [
            *([str(runtime)] if isinstance(runtime, Path) else ["-m", "dataflow", runtime]),
            *flags,
        ]
    transport, words = split_transport(runtime, flags)
    return ["-m", "dataflow", "run", f"{runtime} {transport}", *words]


class Script:
    """A command that runs as a child of this process, with a folder of its own for temporary files."""

    def __init__(
        self, runtime: str | Path, *flags: str, temporary: Path | None = None, prefix: Sequence[str] = (),
        output: str = "", variables: Mapping[str, str] = {}, project: Path = ROOT,
    ) -> None:  # fmt: skip
        # Short, because Ray puts sockets below it.
        self.folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
        self.temporary = temporary or self.folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.output = Path(output or self.folder / "record.json")
        self.before: set[Any] = set()
        self.before = self.leftovers()
        command = [*prefix, sys.executable, *run_words(runtime, *flags)]
        if "--command" not in flags:  # of nodes, which has all words of a command
            command += ["--output", str(self.output)]
        # A token of this user would otherwise be required from the shared cluster, which has none.
        own = {"TMPDIR": str(self.temporary), "DATA_FLOW_LOCK": str(self.folder), **variables}
        self.process = subprocess.Popen(
            command, cwd=project, env={"RAY_AUTH_MODE": "disabled", **os.environ, **own}, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def wait_for_iterations(self, count: int) -> None:
        """Wait until the run's own progress table shows that so many iterations have ended."""
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            for folder in self.run_folders():
                with suppress(OSError):
                    # Phase, iterations begun, iterations ended.
                    words = (folder / "progress").read_bytes()[:24]
                    if len(words) == 24 and int.from_bytes(words[16:], sys.byteorder) >= count:
                        return
            time.sleep(0.02)
        raise AssertionError(
            f"the run ended before iteration {count}: {self.process.stderr.read()}"
        )

    def run_folders(self) -> set[Path]:
        """Return the folders of runs that began since the start; an older script may share the temporary folder."""
        return {*self.temporary.glob(f"{cleanup.PREFIX}*")} - self.before

    def finish(self) -> Finished:
        try:
            stdout, stderr = self.process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGINT)
            raise
        return Finished(self.process.returncode, stdout, stderr, self.output)

    def remove(self) -> None:
        """End the command and everything that it has started, and remove their files."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        for process in descendants() - self.before:
            with suppress(psutil.Error):
                process.kill()
        with suppress(ValueError):  # the pipes are closed already
            self.process.communicate()
        for folder in self.run_folders():
            cleanup.clean(folder)
        shutil.rmtree(self.folder)

    def leftovers(self, seconds: float = 0) -> set[psutil.Process | Path | str]:
        """Return processes, shared memory, semaphores, temporary files and networks that are there after so long."""
        deadline = time.monotonic() + seconds
        while True:
            now = {*descendants(), *shared_memory_files(self.temporary), *self.temporary.iterdir()}
            left = now.union(psutil.net_if_addrs()) - self.before
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.1)


@pytest.fixture
def begin_run():
    """begin_run(runtime, *flags) -> Script. Nothing of the run outlives the test."""
    begun: list[Script] = []

    def begin(runtime: str | Path, *flags: str, **options: Any) -> Script:
        begun.append(Script(runtime, *flags, **options))
        return begun[-1]

    yield begin
    for script in begun:
        script.remove()


@pytest.fixture
def run_script(begin_run):
    """run_script(runtime, *flags) -> Finished, after a check that the run has left nothing behind."""

    def run(runtime: str | Path, *flags: str, **options: Any) -> Finished:
        begun = begin_run(runtime, *flags, **options)
        finished = begun.finish()
        assert begun.leftovers(LEAVE_SECONDS) == set()
        return finished

    return run


@pytest.fixture
def measure(run_script, join_cluster):
    """measure(configuration, *flags) -> the record of a run without an error and without a wrong byte."""

    def run(configuration: str, *flags: str) -> Record:
        runtime, transport = configuration.split()
        finished = run_script(runtime, "--transport", transport, *flags, *join_cluster(runtime))
        assert (finished.code, finished.stderr) == (0, "")
        assert (finished.run.status, finished.run.wrong_bytes) == ("ok", 0)
        return finished.record

    return run
