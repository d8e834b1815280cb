"""Provide the fixtures of all tests: plans, and real runs of the scripts with a check of what they leave behind."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dataflow.errors import UsageError
from dataflow.plan import validate
from dataflow.plan.command_line import make_options, parse_flags
from dataflow.plan.options import Options
from dataflow.plan.plan import Plan, resolve_plan
from dataflow.records import files
from dataflow.records.schema import Record, Run
from dataflow.studies import studies
from dataflow.workers import cleanup

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_TRANSPORTS = {"store": "driver-queue", "graph": "shm", "rdt": "gloo", "torch": "gloo", "peers": "zmq-ipc"}
KILOBYTES = ("--batch-size", "4", "--prompt-seq-len", "256")  # 8 to 40 KiB per message, 112 KiB per iteration
LEAVE_SECONDS = 10  # other tests that run at the same time may remove what they have made
RUN_SECONDS = 250  # a run that takes longer is killed; on an idle machine it takes about ten
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
SHARED_MEMORY = Path("/dev/shm")


def pytest_configure():
    """Make this process inherit every process that a run leaves behind, and make its runs wait only for its own."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.environ["DATA_FLOW_LOCK"] = f"tests of {os.getpid()}"  # other processes run tests too, without waiting


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also run the tests that take long")


def pytest_collection_modifyitems(config, items):
    """Mark tests that start workers, so that `pytest -m "not runs"` leaves them out; skip long ones without --all."""
    for item in items:
        if any(mark.args[0] not in studies() for mark in item.iter_markers("study")):
            item.add_marker(pytest.mark.skip(reason="its study is not there"))
        if item.get_closest_marker("long") and not config.getoption("--all"):
            item.add_marker(pytest.mark.skip(reason="it takes long: make test ARGS=--all runs it"))
        if ROOT / "tests" / "runs" in item.path.parents or "begin_run" in getattr(item, "fixturenames", ()):
            item.add_marker("runs")
    items.sort(
        key=lambda item: item.get_closest_marker("runs") is None
    )  # those that start workers first, so that none is the last


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(validate, "count_gpus", lambda: 0)


@pytest.fixture
def make_plan(no_gpu):
    """make_plan(runtime, *flags, **changes) -> the plan of a script's flags on a machine without a GPU."""

    def make(runtime: str, *flags: str, **changes) -> Plan:
        (options,) = parse_options(runtime, *flags)
        plan, skipped = resolve_plan(runtime, options)
        assert skipped is None, skipped
        return replace(plan, **changes)

    return make


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
    """Return the words after `python3` that measure the configuration of --transport, or the program in a file."""
    if isinstance(runtime, Path):
        return [str(runtime), *flags]
    transport, words = split_transport(runtime, flags)
    return ["-m", "dataflow", "run", f"{runtime} {transport}", *words]


def split_transport(runtime: str, flags: Sequence[str]) -> tuple[str, list[str]]:
    """Return the value of --transport, or the default of these tests, and the other flags."""
    words = [*map(str, flags)]
    transport = DEFAULT_TRANSPORTS[runtime]
    if "--transport" in words:
        index = words.index("--transport")
        _, transport = words[index : index + 2]
        del words[index : index + 2]
    return transport, words


def parse_options(runtime: str, *flags: str) -> list[Options]:
    """Return the options of the configuration of --transport with the other flags."""
    transport, words = split_transport(runtime, flags)
    return make_options(transport, parse_flags(words))


def reject_options(runtime: str, *flags: str) -> str:
    """Return the error of these flags, which has one line."""
    with pytest.raises(UsageError) as error:
        for options in parse_options(runtime, *flags):
            resolve_plan(runtime, options)
    assert "\n" not in str(error.value)
    return str(error.value)


class Script:
    """A command that runs as a child of this process, with a folder of its own for temporary files."""

    def __init__(
        self,
        runtime: str | Path,
        *flags: str,
        temporary: Path | None = None,
        prefix: Sequence[str] = (),
        output: str = "",
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # short, because Ray puts sockets below it
        self.temporary = temporary or self.folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.output = Path(output or self.folder / "record.json")
        self.shared_before = shared_memory_files(self.temporary)
        self.descendants_before = descendants()
        command = [*prefix, sys.executable, *run_words(runtime, *flags), "--output", str(self.output)]
        # A token of this user would otherwise be required from the shared cluster, which has none.
        variables = {"RAY_AUTH_MODE": "disabled", **os.environ}
        variables |= {"TMPDIR": str(self.temporary), "DATA_FLOW_LOCK": str(self.folder)}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=variables, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def wait_for_iterations(self, count: int) -> None:
        """Wait until the run's own progress table shows that so many iterations have ended."""
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            for folder in self.run_folders():
                with suppress(OSError):
                    words = (folder / "progress").read_bytes()[:24]  # phase, iterations begun, iterations ended
                    if len(words) == 24 and int.from_bytes(words[16:], sys.byteorder) >= count:
                        return
            time.sleep(0.02)
        raise AssertionError(f"the run ended before iteration {count}: {self.process.stderr.read()}")

    def run_folders(self) -> list[Path]:
        """Return the folders of this script's runs; another script may share the temporary folder."""
        folders = self.temporary.glob(f"{cleanup.PREFIX}*")
        return [folder for folder in folders if self.process.pid in lock_holders(folder)]

    def guard(self) -> psutil.Process:
        """Return the process that cleans up if the supervisor cannot."""
        (guard,) = [
            child
            for child in psutil.Process(self.process.pid).children()
            if "dataflow.workers.guard" in child.cmdline()
        ]
        return guard

    def finish(self) -> Finished:
        try:
            stdout, stderr = self.process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGINT)
            raise
        return Finished(self.process.returncode, stdout, stderr, self.output)

    def leftover_processes(self) -> list[psutil.Process]:
        """Return every process that is left of this script: those that this process has inherited since."""
        return [process for key, process in descendants().items() if key not in self.descendants_before]

    def leftovers(self, seconds: float = 0) -> list[str]:
        """Return processes, shared memory, semaphores and temporary files that are still there after so long."""
        deadline = time.monotonic() + seconds
        while True:
            left = [
                *map(str, self.leftover_processes()),
                *map(str, shared_memory_files(self.temporary) - self.shared_before),
            ]
            left += map(str, self.temporary.iterdir())
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.1)


CLUSTER: list[psutil.Process] = []  # the processes of the shared Ray cluster, which keeps idle workers


def descendants() -> dict[tuple[int, float], psutil.Process]:
    """Return the living descendants of this process, without the shared cluster's, by process id and start time."""
    living = {}
    waiting = psutil.Process().children()
    while waiting:
        process = waiting.pop()
        with suppress(psutil.Error):
            if process not in CLUSTER and process.status() != psutil.STATUS_ZOMBIE:
                living[process.pid, process.create_time()] = process
                waiting += process.children()
    return living


def shared_memory_files(temporary: Path) -> set[Path]:
    """Return the names in /dev/shm that neither a living process outside of this one nor another test has created."""
    own = {process.pid for process in psutil.Process().children(recursive=True)} | {os.getpid()}
    paths = {path for path in SHARED_MEMORY.iterdir() if creator_of(path.name) in own | {None}}
    of_others = {run.name for run in Path("/tmp").glob(f"t-*/tmp/{cleanup.PREFIX}*") if run.parent != temporary}
    return {path for path in paths if path.name.removeprefix("sem.")[: len(cleanup.PREFIX) + 8] not in of_others}


def creator_of(name: str) -> int | None:
    """Return the living process that created a file of /dev/shm, as far as names, run folders and commands say so."""
    folder = name.removeprefix("sem.")[: len(cleanup.PREFIX) + 8]
    if not folder.startswith(cleanup.PREFIX):
        numbers = [int(number) for number in re.findall(r"\d+", name) if len(number) < 9]  # longer ones are times
        return next((number for number in numbers if psutil.pid_exists(number)), None)
    parents = (Path("/tmp"), *Path("/tmp").glob("t-*/tmp"))
    return next((holder for parent in parents for holder in lock_holders(parent / folder)), None)


def lock_holders(folder: Path) -> set[int]:
    """Return the processes that lock the folder of a run: its supervisor and its guard."""
    with suppress(OSError):
        inode = folder.stat().st_ino
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return {int(pid) for _, kind, _, _, pid, file, *_ in locks if kind == "FLOCK" and file.endswith(f":{inode}")}
    return set()


@pytest.fixture
def begin_run():
    """begin_run(runtime, *flags) -> Script. Nothing of the run outlives the test."""
    begun: list[Script] = []

    def begin(runtime: str | Path, *flags: str, **options: Any) -> Script:
        begun.append(Script(runtime, *flags, **options))
        return begun[-1]

    yield begin
    for script in begun:
        if script.process.poll() is None:
            script.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                script.process.wait(30)
        for process in [*script.leftover_processes()]:
            with suppress(psutil.Error):
                process.kill()
        with suppress(ValueError):  # the pipes are closed already
            script.process.communicate()
        for folder in script.temporary.glob(f"{cleanup.PREFIX}*"):
            cleanup.clean(folder)
        shutil.rmtree(script.folder)


@pytest.fixture
def run_script(begin_run):
    """run_script(runtime, *flags) -> Finished, after a check that the run has left nothing behind."""

    def run(runtime: str | Path, *flags: str) -> Finished:
        begun = begin_run(runtime, *flags)
        finished = begun.finish()
        assert begun.leftovers(LEAVE_SECONDS) == []
        return finished

    return run


@pytest.fixture
def join_cluster(request):
    """join_cluster(runtime) -> flags that join the shared cluster, which saves the start of a private one.

    Groups of ray.util.collective (rdt) hang on an existing cluster.
    """
    return lambda runtime: request.getfixturevalue("cluster") if runtime in ("store", "graph") else ()


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
    pids = []
    for process in CLUSTER:
        with suppress(psutil.Error):
            for child in [*process.children(recursive=True), process]:
                pids.append(child.pid)
                child.kill()
    CLUSTER.clear()
    for path in SHARED_MEMORY.glob("sem.*-*"):  # Ray leaves those of the channels of an example's graph
        creator = re.match(r"sem\.(?:obj|hdr)(\d+)-", path.name)
        if creator and int(creator[1]) in pids:
            path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
