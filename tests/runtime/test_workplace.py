"""A run's folders and processes, and their removal by whoever is left."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from common.runtime import settings, workplace
from common.runtime.settings import variables
from common.runtime.workplace import MARK, Workplace, channel_semaphores, clean, remember, sweep


@pytest.fixture
def place(monkeypatch, tmp_path):
    """Folders of runs, and a shared memory, of this test's own."""
    monkeypatch.setattr(workplace.tempfile, "gettempdir", lambda: str(tmp_path))
    shared = tmp_path / "shm"
    shared.mkdir()
    monkeypatch.setattr(workplace, "SHARED_MEMORY", shared)
    return tmp_path


def sleeper(mark):
    code = "import time; print(1, flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], env={MARK: mark}, stdout=subprocess.PIPE)
    process.stdout.read(1)
    return process


@pytest.fixture
def dead_run(place):
    """dead_run(owner) -> the folder of a run whose supervisor the file `owner` names, with all that it left."""

    def make(owner):
        folder = place / "data-flow-0123"
        folder.mkdir()
        (folder / "owner").write_text(owner)
        shared = workplace.SHARED_MEMORY / folder.name
        shared.mkdir()
        (shared / "policy").write_bytes(bytes(8))
        remember(folder, [11, 22], ["sem.obj33-d"])
        for name in ("sem.hdr11-a", "sem.obj22-b", "sem.hdr33-c", "sem.obj33-d", f"sem.{folder.name}-queue"):
            (workplace.SHARED_MEMORY / name).touch()
        return folder

    return make


def left(place):
    return sorted(path.name for path in (*place.glob("data-flow*"), *workplace.SHARED_MEMORY.iterdir()))


@pytest.mark.parametrize("long", [False, True])
def test_a_run_has_two_folders_of_its_own_that_end_with_it(monkeypatch, place, long):
    """Below /tmp where TMPDIR is too long a path for the sockets of Ray."""
    parent = Path("/tmp") if long else Path(os.path.realpath("/var/tmp"))
    monkeypatch.setattr(workplace.tempfile, "gettempdir", lambda: str(place) if long else str(parent))
    with Workplace() as run:
        assert run.folder.parent == parent
        assert {path.stat().st_mode & 0o777 for path in (run.folder, run.shared)} == {0o700}
        assert run.shared.name == run.folder.name
        process = sleeper(run.folder.name)
    assert not psutil.pid_exists(process.pid)
    assert not run.folder.exists()
    assert not run.shared.exists()
    assert not psutil.pid_exists(run.guard)


def test_a_guard_that_somebody_killed_is_not_missed(place):
    with Workplace() as run:
        os.kill(run.guard, 9)
        while psutil.Process(run.guard).status() != psutil.STATUS_ZOMBIE:
            pass
    assert not run.folder.exists()


@pytest.mark.parametrize("owner", ["999999999 1.0", f"{os.getpid()} 1.0"], ids=["gone", "another process by now"])
def test_the_next_run_removes_what_a_dead_one_left(place, dead_run, owner):
    """Its process is gone, or its number is another one's by now."""
    folder = dead_run(owner)
    process, stranger = sleeper(folder.name), sleeper("data-flow-other")
    sweep()
    assert not psutil.pid_exists(process.pid)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    assert left(place) == ["sem.hdr33-c"]


def test_the_next_run_leaves_one_alone_that_lives(place, dead_run):
    dead_run(workplace._identity(os.getpid()))
    sweep()
    assert len(left(place)) == 7


def test_the_next_run_leaves_alone_what_is_not_this_users_or_no_run(monkeypatch, place, dead_run):
    folder = dead_run("999999999 1.0")
    (place / "data-flow-notes").mkdir()
    monkeypatch.setattr(workplace.os, "getuid", lambda: folder.stat().st_uid + 1)
    sweep()
    assert len(left(place)) == 8


def test_semaphores_are_known_to_who_made_them_and_to_who_opened_them(place):
    """glibc makes one under a passing name, which stays the maker's in its list of mappings."""
    shared = workplace.SHARED_MEMORY
    for name in ("sem.passing", "sem.hdr5-opened", "sem.obj5-anothers"):
        (shared / name).write_bytes(bytes(32))
    with (
        (shared / "sem.passing").open("r+b") as made, mmap.mmap(made.fileno(), 0),
        (shared / "sem.hdr5-opened").open("r+b") as opened, mmap.mmap(opened.fileno(), 0),
    ):  # fmt: skip
        (shared / "sem.obj5-made").hardlink_to(shared / "sem.passing")
        (shared / "sem.passing").unlink()
        assert sorted(channel_semaphores()) == ["sem.hdr5-opened", "sem.obj5-made"]


@pytest.mark.parametrize("content", ["", "soon"])
def test_a_run_whose_owner_is_only_just_writing_its_name_is_left_alone(place, dead_run, content):
    dead_run(content)
    sweep()
    assert len(left(place)) == 7


def test_cleaning_up_twice_is_no_error(dead_run):
    folder = dead_run("999999999 1.0")
    clean(folder)
    clean(folder)


def test_threads_that_copied_sleep_unless_the_user_says_otherwise(make_plan, monkeypatch):
    """Else they spin on for a while, on the cores of who copies next: OpenMP's own way."""
    plan = make_plan("torch", "--threads", "2", "--batch-size", "4", "--prompt-seq-len", "256")
    for set_by_user, expected in ((None, "passive"), ("active", "active")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if set_by_user:
            monkeypatch.setenv("OMP_WAIT_POLICY", set_by_user)
        assert variables(plan)["OMP_WAIT_POLICY"] == expected


def test_settings_of_torch_and_of_ray_are_a_workers_own(make_plan):
    kilobytes = ("--batch-size", "4", "--prompt-seq-len", "256")
    assert variables(make_plan("torch", *kilobytes)) == {"GLOO_SOCKET_IFNAME": "lo"}
    plan = make_plan("store", "--zero-copy", "--timeout", "7", "--transport", "refs", *kilobytes)
    found = variables(plan)
    assert (found["RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"], found["RAY_CGRAPH_get_timeout"]) == ("1", "37")
    assert found["RAY_AUTH_TOKEN"] != variables(plan)["RAY_AUTH_TOKEN"]


def test_a_driver_sends_the_token_of_the_cluster_that_it_joins_where_there_is_one(make_plan, monkeypatch, tmp_path):
    plan = make_plan("store", "--address", "auto", "--batch-size", "4", "--prompt-seq-len", "256")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(settings, "TOKEN", tmp_path / "auth_token")
    assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "GLOO_SOCKET_IFNAME"} & set(variables(plan))
    settings.TOKEN.write_text("secret")
    assert variables(plan)["RAY_AUTH_MODE"] == "token"
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert "RAY_AUTH_MODE" not in variables(plan)
