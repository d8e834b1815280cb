# SPDX-License-Identifier: Apache-2.0
"""Check that nothing of a run stays: no process, no zombie, no file, whoever is killed."""

import mmap
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from dataflow.errors import RunFailed
from dataflow.measure import supervisor
from dataflow.measure.supervisor import make_items
from dataflow.plan.command_line import plan_configuration
from dataflow.workers import cleanup
from dataflow.workers.cleanup import (
    ROOT,
    RunFolder,
    channel_semaphores,
    clean,
    remember,
    remove_dead_runs,
)

# A run whose driver starts processes that leave its session, its parent and its environment behind, as Ray's agents do.
# One of them ends at once: a zombie if nobody reaps it. Another one is stopped.
SUPERVISOR = """
import sys
from dataflow.workers.cleanup import ROOT, RunFolder
with RunFolder() as run_folder:
    command = [sys.executable, "-c", sys.argv[1], str(run_folder.folder), *sys.argv[2:]]
    run_folder.start_driver(command, ROOT, {})
    print(run_folder.folder, flush=True)
    sys.stdin.read(1)
"""
DRIVER = """
import subprocess, sys, time
orphan = "import os, sys, time; os.fork() and os._exit(0); os.setsid(); exec(sys.argv[1])"
wait = "print(os.getpid(), file=open(sys.argv[2], 'a')); time.sleep(600)"
for code in ("pass", wait, "os.fork(); " + wait, "os.kill(os.getpid(), 19) if os.fork() else 0; " + wait):
    subprocess.run([sys.executable, "-c", orphan, code, sys.argv[2]], env={}, check=True)
time.sleep(600)
"""
WAITING = 4  # processes that write their ids


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """Give the runs of this test a temporary folder and a /dev/shm of their own."""
    monkeypatch.setattr(cleanup.tempfile, "gettempdir", lambda: str(tmp_path))
    shared = tmp_path / "shm"
    shared.mkdir()
    monkeypatch.setattr(cleanup, "SHARED_MEMORY", shared)
    return tmp_path


def descendants():
    """Return all descendants of this process, which inherits all orphans, as (process id, start time), with zombies."""
    return {
        (process.pid, process.create_time())
        for process in psutil.Process().children(recursive=True)
    }


@pytest.fixture
def tree(monkeypatch):
    """Return a supervisor, its guard, the orphans of its driver process, and its run folder. Nothing outlives the test.

    before: the descendants that this process had already.
    """
    cleanup.become_subreaper()  # so that this process inherits every process that is left
    folder, before = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp")), descendants()
    pids = folder / "pids"
    monkeypatch.setattr(cleanup.tempfile, "gettempdir", lambda: str(folder))
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, DRIVER, str(pids)], cwd=ROOT, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(folder)},
    )  # fmt: skip
    run_folder = Path(supervisor.stdout.readline().strip())
    (guard,) = psutil.Process(supervisor.pid).children()
    deadline = time.monotonic() + 30
    while not pids.exists() or len(pids.read_text().splitlines()) < WAITING:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    orphans = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
    yield SimpleNamespace(
        supervisor=supervisor, guard=guard, orphans=orphans, folder=run_folder, before=before
    )
    for pid, _ in descendants() - before:
        with suppress(psutil.Error):
            psutil.Process(pid).kill()
    clean(run_folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("killed", ["nobody", "supervisor", "guard", "both"])
def test_nothing_is_left_whatever_is_killed_and_whatever_signals_the_guard_gets(
    tree, monkeypatch, killed
):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        tree.guard.send_signal(number)
    time.sleep(0.1)
    assert tree.guard.status() == psutil.STATUS_SLEEPING
    assert all(process.is_running() for process in tree.orphans)
    if killed == "both":
        tree.guard.suspend()  # or it would clean up between the two signals
    if killed in ("supervisor", "both"):
        tree.supervisor.kill()
    if killed == "guard":
        tree.guard.kill()
    tree.supervisor.communicate("\n" if killed in ("nobody", "guard") else None, timeout=30)
    if killed == "supervisor":
        assert tree.guard.wait(30) == 0
    if killed == "both":
        remove_dead_runs()  # not yet: the guard may go on
        assert all(process.is_running() for process in tree.orphans)
        tree.guard.kill()
        tree.guard.wait(30)
        monkeypatch.setattr(supervisor.Monitor, "follow_driver", lambda *_: None)
        (following,) = make_items(plan_configuration("torch memcpy", {}), tree.folder.parent)
        supervisor.measure_run(following, 0)
    assert tree.supervisor.returncode == (0 if killed in ("nobody", "guard") else -signal.SIGKILL)
    assert [process for process in tree.orphans if process.is_running()] == []
    assert descendants() <= tree.before
    assert not tree.folder.exists() and not (cleanup.SHARED_MEMORY / tree.folder.name).exists()


@pytest.mark.parametrize(
    ("end", "returncode"), [("exit(3)", 3), ("os.kill(os.getpid(), 15)", -15), ("exit(4)", None)]
)
def test_a_driver_has_its_environment_directory_session_and_exit_code(
    temporary, capfd, end, returncode
):
    code = "import os, sys; print(os.getsid(0) == os.getpid(), os.getcwd(), sys.stdin.read(), *map(os.environ.get, {}))"
    with RunFolder() as driver:
        code = code.format(["SETTING", "TMPDIR"]) + f"; sys.stdout.flush(); {end}"
        driver.start_driver([sys.executable, "-c", code], temporary, {"SETTING": "1"})
        assert select.select([driver.poll_handle], [], [], 30)[0] == [driver.poll_handle]
        if returncode is not None:  # otherwise, nobody asks for it
            assert driver.returncode() == returncode
    assert not driver.folder.exists()
    assert capfd.readouterr().err.split() == ["True", str(temporary), "1", str(driver.folder)]


def test_processes_that_cannot_be_ended_fail_the_run_and_are_named(temporary, monkeypatch, capfd):
    for error in (None, KeyboardInterrupt):
        with pytest.raises(error or RunFailed) as raised, RunFolder() as run_folder:
            run_folder.start_driver(["/bin/sleep", "600"], ROOT, {})
            monkeypatch.setattr(
                cleanup, "CLEAN_SECONDS", 0
            )  # so that the time is over before a process can end
            if error:
                raise error
        driver = f"Process(pid={run_folder.pid}, name='sleep'"
        assert driver in (capfd.readouterr().err if error else str(raised.value))
        assert not run_folder.folder.exists()
        psutil.Process(run_folder.pid).kill()
        os.waitpid(run_folder.pid, 0)


def test_a_temporary_folder_that_is_nearly_full_is_named(temporary, monkeypatch):
    monkeypatch.setattr(cleanup, "MIN_FREE_BYTES", 2**60)
    with pytest.raises(RunFailed, match=r"^/.* is nearly full: free 16 MiB"), RunFolder():
        pass
    assert files_left(temporary) == []


@pytest.fixture
def dead_run(temporary):
    """Return the folder of a run that nobody locks, with all that such a run may leave, and another folder."""
    folder = temporary / f"{cleanup.PREFIX}0123"
    for path in (
        folder,
        cleanup.SHARED_MEMORY / folder.name,
        cleanup.SHARED_MEMORY / f"{cleanup.PREFIX}notes",
    ):
        path.mkdir()
    remember(folder, "pids", [11, 22])
    remember(folder, "semaphores", ["sem.obj33-d"])
    for name in (
        "sem.hdr11-a",
        "sem.obj22-b",
        "sem.hdr33-c",
        "sem.obj33-d",
        "torch_11_123_0",
        "torch_33_123_0",
        "cuda.shm.0.b.1",  # of process 11
        "cuda.shm.0.21.1",  # of process 33
        f"sem.{folder.name}-queue",
    ):
        (cleanup.SHARED_MEMORY / name).touch()
    return folder


def files_left(temporary):
    return sorted(
        path.name
        for path in (*temporary.glob(f"{cleanup.PREFIX}*"), *cleanup.SHARED_MEMORY.iterdir())
    )


def test_the_next_run_removes_only_the_files_and_processes_of_dead_runs(
    temporary, dead_run, monkeypatch
):
    def start_marked(folder):
        limits = (cleanup.mark_of(folder), resource.RLIM_INFINITY)
        process = subprocess.Popen(["sleep", "600"])
        resource.prlimit(process.pid, resource.RLIMIT_RTTIME, limits)
        return process

    def unlink_own(path, *arguments):
        if path.name == "sem.hdr11-a":
            raise PermissionError  # it is another user's
        unlink(path, *arguments)

    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", unlink_own)
    own, other = start_marked(dead_run), start_marked(Path(f"{cleanup.PREFIX}0124"))
    (dead_run / "log").touch()
    reader = subprocess.Popen(
        ["sleep", "600"], stdin=(dead_run / "log").open(), start_new_session=True
    )
    remove_dead_runs()
    clean(dead_run)  # twice is no error
    assert not psutil.pid_exists(own.pid)
    assert [other.poll(), reader.poll()] == [
        None,
        None,
    ]  # a program that reads a log file is no process of the run
    for process in (other, reader):
        process.kill()
        process.wait()
    left = ["cuda.shm.0.21.1", f"{cleanup.PREFIX}notes", "sem.hdr11-a", "sem.hdr33-c"]
    left.append("torch_33_123_0")
    assert files_left(temporary) == left


def test_the_next_run_leaves_living_and_new_runs_and_those_of_other_machines_alone(
    temporary, dead_run
):
    (
        cleanup.SHARED_MEMORY / dead_run.name
    ).rmdir()  # as of a new run, and of one of another machine
    with RunFolder():
        before, handles = files_left(temporary), os.listdir("/proc/self/fd")
        remove_dead_runs()
        assert (files_left(temporary), os.listdir("/proc/self/fd")) == (before, handles)


def test_the_semaphores_that_a_process_has_created_or_opened_are_found(temporary):
    """glibc creates a semaphore under a temporary name, which stays in the creator's list of mappings."""
    shared = cleanup.SHARED_MEMORY
    for name in ("sem.temporary", "sem.hdr5-opened", "sem.obj5-of-another-process"):
        (shared / name).write_bytes(bytes(32))
    with (
        (shared / "sem.temporary").open("r+b") as created, mmap.mmap(created.fileno(), 0),
        (shared / "sem.hdr5-opened").open("r+b") as opened, mmap.mmap(opened.fileno(), 0),
    ):  # fmt: skip
        (shared / "sem.obj5-created").hardlink_to(shared / "sem.temporary")
        (shared / "sem.temporary").unlink()
        assert sorted(channel_semaphores()) == ["sem.hdr5-opened", "sem.obj5-created"]


def test_the_guard_reports_processes_that_it_cannot_end(temporary):
    """The supervisor inherits them, and tries again."""
    code = "from dataflow.workers import cleanup; cleanup.clean = lambda _: ['a process']; cleanup.run_guard()"
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    (folder := temporary / f"{cleanup.PREFIX}1").mkdir()
    command = [sys.executable, "-c", code, str(folder), str(other.fileno()), "/", "/bin/sleep", "0"]
    with own, other:
        guard = subprocess.Popen(
            command, cwd=ROOT, pass_fds=[other.fileno()], stderr=subprocess.PIPE
        )
    assert (guard.communicate(timeout=30)[1], guard.returncode) == (b"", 1)


def test_a_run_folder_is_removed_at_once_if_shared_memory_cannot_be_used(temporary, monkeypatch):
    """The next run would not find it, because it looks for folders in shared memory."""
    cleanup.SHARED_MEMORY.rmdir()
    before = os.listdir("/proc/self/fd")
    with (
        pytest.raises(RunFailed, match=r"cannot be made \(No such file.*check the space"),
        RunFolder(),
    ):
        pass
    assert [*temporary.iterdir()] == []
    assert os.listdir("/proc/self/fd") == before
