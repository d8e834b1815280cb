"""Provide the fixtures of all tests: plans, and real runs of the scripts with a check of what they leave behind."""

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dataflow.catalogue.catalogue import TRANSPORTS, Transport
from dataflow.errors import UsageError
from dataflow.plan import validate
from dataflow.plan.command_line import make_options, parse_flags
from dataflow.plan.options import Options
from dataflow.plan.plan import Plan, resolve_plan
from dataflow.records import files
from dataflow.records.schema import Record, Run
from dataflow.study import studies
from dataflow.workers import cleanup

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_TRANSPORTS = {
    "store": "driver-queue",
    "graph": "shm",
    "rdt": "gloo",
    "torch": "gloo",
    "peers": "zmq-ipc",
}
KILOBYTES = (
    "--batch-size",
    "4",
    "--prompt-seq-len",
    "256",
)  # 8 to 40 KiB per message, 112 KiB per iteration
LEAVE_SECONDS = 10  # other tests that run at the same time may remove what they have made
RUN_SECONDS = 250  # a run that takes longer is killed; on an idle machine it takes about ten
STUDIES = {
    "chatlearn",
    "detached_ppo",
    "external_systems",
    "model_loading",
    "pipeline",
    "weights",
    "zero",
}
collect_ignore = [f"studies/{name}" for name in STUDIES - studies().keys()]


def pytest_configure():
    """Make this process inherit every process that a run leaves behind, and make its runs wait only for its own."""
    cleanup.become_subreaper()
    os.environ["DATA_FLOW_LOCK"] = (
        f"/proc/{os.getpid()}"  # other processes run tests too, without waiting
    )


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also run the tests that take long")


def pytest_collection_modifyitems(config, items):
    """Mark tests that start workers, so that `pytest -m "not runs"` leaves them out; skip long ones without --all."""
    for item in items:
        if any({*(mark.args or STUDIES)} - studies().keys() for mark in item.iter_markers("study")):
            item.add_marker(pytest.mark.skip(reason="its study is not there"))
        if item.get_closest_marker("long") and not config.getoption("--all"):
            item.add_marker(pytest.mark.skip(reason="it takes long: make test ARGS=--all runs it"))
        if ROOT / "tests" / "runs" in item.path.parents or "begin_run" in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker("runs")
    items.sort(
        key=lambda item: item.get_closest_marker("runs") is None
    )  # long ones first, so that none is the last


@pytest.fixture(autouse=True, scope="module")
def collect_frozen_objects():
    """Free what the actors of a module's tests have left in this process, such as mapped files.

    An actor freezes all objects after its first iteration, so that Python does not collect them while the clock runs.
    """
    yield
    gc.unfreeze()
    gc.collect()


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(validate, "count_gpus", lambda: 0)


@pytest.fixture
def make_plan(no_gpu):
    """make_plan(runtime, *flags, **changes) -> the plan of a script's flags on a machine without a GPU."""

    def make(runtime: str, *flags: str, **changes) -> Plan:
        (options,) = parse_options(runtime, *flags)
        plan, skipped = resolve_plan(transport_of(runtime, options), options)
        assert skipped is None, skipped
        return replace(plan, **changes)

    return make


def copy_project(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """Copy packages and scripts into a folder. changes: file, a text that it has once, and the text in its place."""
    for name in ("dataflow", "common"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("*.py"):
        shutil.copy(path, folder)
    for name, old, new in changes:
        text = (folder / name).read_text()
        assert text.count(old) == 1, (name, old)
        (folder / name).write_text(text.replace(old, new))
    return folder


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


def split_transport(runtime: str, flags: Sequence[str]) -> tuple[str, list[str]]:
    """Return the value of --transport, or the default of these tests, and the other flags."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--transport", default=DEFAULT_TRANSPORTS[runtime])
    known, words = parser.parse_known_args([*map(str, flags)])
    return known.transport, words


def parse_options(runtime: str, *flags: str) -> list[Options]:
    """Return the options of the configuration of --transport with the other flags."""
    transport, words = split_transport(runtime, flags)
    return make_options(TRANSPORTS[f"{runtime} {transport}"], parse_flags(words))


def transport_of(runtime: str, options: Options) -> Transport:
    return TRANSPORTS[f"{runtime} {options.transport}"]


def reject_options(runtime: str, *flags: str) -> str:
    """Return the error of these flags, which has one line."""
    with pytest.raises(UsageError) as error:
        for options in parse_options(runtime, *flags):
            resolve_plan(transport_of(runtime, options), options)
    assert "\n" not in str(error.value)
    return str(error.value)


class Script:
    """A command that runs as a child of this process, with a folder of its own for temporary files."""

    def __init__(
        self, runtime: str | Path, *flags: str, temporary: Path | None = None, prefix: Sequence[str] = (),
        output: str = "", variables: Mapping[str, str] = {}, project: Path = ROOT,
    ) -> None:  # fmt: skip
        self.folder = Path(
            tempfile.mkdtemp(prefix="t-", dir="/tmp")
        )  # short, because Ray puts sockets below it
        self.temporary = temporary or self.folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.output = Path(output or self.folder / "record.json")
        self.before: set[Any] = set()
        self.before = self.leftovers()
        command = [
            *prefix,
            sys.executable,
            *run_words(runtime, *flags),
            "--output",
            str(self.output),
        ]
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
                    words = (folder / "progress").read_bytes()[
                        :24
                    ]  # phase, iterations begun, iterations ended
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


CLUSTER: list[
    psutil.Process
] = []  # the processes of the shared Ray cluster, which keeps idle workers


def descendants() -> set[psutil.Process]:
    """Return the living descendants of this process, without the shared cluster's."""
    living, waiting = set(), psutil.Process().children()
    while waiting:
        process = waiting.pop()
        with suppress(psutil.Error):
            if process not in CLUSTER and process.status() != psutil.STATUS_ZOMBIE:
                living.add(process)
                waiting += process.children()
    return living


def shared_memory_files(temporary: Path) -> set[Path]:
    """Return the files in /dev/shm without those of living processes, and of runs with another temporary folder.

    Their names have the id of the process, or begin with the name of the run's folder.
    """
    runs = (
        *Path("/tmp").glob(f"{cleanup.PREFIX}*"),
        *Path("/tmp").glob(f"t-*/tmp/{cleanup.PREFIX}*"),
    )
    of_others = tuple(run.name for run in runs if run.parent != temporary)
    own = {process.pid for process in psutil.Process().children(recursive=True)} | {os.getpid()}
    left = set()
    for path in cleanup.SHARED_MEMORY.iterdir():
        name = path.name.removeprefix("sem.")
        numbers = (
            [] if name.startswith(cleanup.PREFIX) else re.findall(r"(?<!\d)\d{1,8}(?!\d)", name)
        )  # not times
        if not name.startswith(of_others) and all(
            int(n) in own or not psutil.pid_exists(int(n)) for n in numbers[:1]
        ):
            left.add(path)
    return left


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
def join_cluster(request):
    """join_cluster(runtime) -> flags that join the shared cluster, which saves the start of a private one.

    Groups of ray.util.collective (rdt) hang on an existing cluster.
    """
    return lambda runtime: (
        request.getfixturevalue("cluster") if runtime in ("store", "graph") else ()
    )


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


@pytest.fixture(scope="session")
def cluster():
    """Start one Ray cluster for all tests of this process; yield the flags with which a script joins it."""
    folder = Path(tempfile.mkdtemp(prefix="c-", dir="/tmp"))
    environment = os.environ | {
        "HOME": str(folder), "RAY_AUTH_MODE": "disabled", "RAY_enable_metrics_collection": "0",
        "RAY_enable_worker_prestart": "0", "RAY_worker_niceness": "0",
    }  # fmt: skip
    command = [
        Path(sys.executable).with_name("ray"), "start", "--head", "--node-ip-address", "127.0.0.1", "--port", "0",
        "--num-cpus", "4", "--include-dashboard=false", "--disable-usage-stats", "--object-store-memory", "600000000",
        "--temp-dir", folder / "ray",
    ]  # fmt: skip
    before = psutil.Process().children()
    subprocess.run(command, env=environment, timeout=RUN_SECONDS, check=True, capture_output=True)
    CLUSTER.extend(process for process in psutil.Process().children() if process not in before)
    yield ("--address", (folder / "ray" / "ray_current_cluster").read_text().strip())
    for process in CLUSTER:
        with suppress(psutil.Error):
            for child in [*process.children(recursive=True), process]:
                child.kill()
                for path in cleanup.SHARED_MEMORY.glob(
                    f"sem.???{child.pid}-*"
                ):  # of the channels of graphs
                    path.unlink(missing_ok=True)
    CLUSTER.clear()
    shutil.rmtree(folder, ignore_errors=True)
