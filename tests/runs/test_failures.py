"""What a run says, keeps and leaves behind when something goes wrong in the middle of it."""

import re
import signal
import time

import psutil
import pytest
from conftest import KILOBYTES, SCRIPTS, SHARED_MEMORY

CHAIN = ("--flow", "chain", "--roles", "2")
MANY = ("--warmup", "0", "--iterations", "1000000")
LONG = ("--warmup", "0", "--iterations", "1000000", *CHAIN)


def assert_failed_with_samples(finished, code, reason):
    """The record is there, has the trips that ended, and says on disk what the screen says."""
    assert finished.code == code, finished.stderr
    run = finished.run
    assert run.status == "failed"
    assert re.search(reason, run.reason)
    assert f"error: {run.reason}\n" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert len(run.seconds) >= 4
    assert run.wrong_bytes == 0
    assert float(finished.stdout.splitlines()[-1].split()[2]) == pytest.approx(sum(run.seconds), rel=0.01)


@pytest.mark.parametrize(
    ("runtime", "transport", "fault", "reason"),
    [
        ("store", "payload-queue", "role-2:6:die", r"^trip 6: role-2 died$"),
        ("graph", "zero-copy", "role-1:6:die", r"^trip 6: role-1 died$"),
        ("rdt", "gloo", "role-1:6:die", r"^trip 6: .*\brole-1\b.* died"),
        ("torch", "gloo", "role-2:6:die", r"^trip 6: role-2 died$"),
        ("torch", "multiprocessing", "role-1:6:segfault", r"^trip 6: role-1 died$"),
        ("graph", "mapped", "role-2:6:stop", r"^trip 6: did not end within 3 s \(--timeout\); role-2 does not answer"),
        ("torch", "gloo", "role-1:6:hang", r"^trip 6: .* role-1 has received 5 trips and waits, or hangs$"),
        ("store", "refs", "role-2:6:raise", r"^trip 6: role-2 raised OSError: no luck today$"),
        ("rdt", "mapped", "role-1:6:raise", r"^trip 6: role-1 raised OSError: no luck today$"),
        ("torch", "gloo", "role-2:6:raise", r"^trip 6: role-2 raised OSError: no luck today$"),
    ],
)
def test_a_role_that_fails_is_named_and_what_was_measured_is_kept(run_script, runtime, transport, fault, reason):
    flags = ("--transport", transport, *LONG, "--inject", fault)
    finished = run_script(SCRIPTS[runtime], *flags, *(("--timeout", "3") if fault.endswith(("stop", "hang")) else ()))
    assert_failed_with_samples(finished, 1, reason)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("driver:6:die", r"^trip 6: the driver's process was ended by SIGKILL$"),
        ("driver:6:segfault", r"^trip 6: the driver's process was ended by SIGSEGV$"),
        ("driver:6:hang", r"^trip 6: did not end within 3 s \(--timeout\)"),
        ("driver:6:stop", r"^trip 6: .*driver.* does not answer: its process is stopped"),
        ("driver:6:garbage", r"^trip 6: the driver's process wrote what is no report$"),
        ("driver:6:raise", r"^trip 6: .*no luck today"),
    ],
)
def test_a_worker_that_fails_is_reported_by_its_supervisor(run_script, fault, reason):
    flags = ("--transport", "memcpy", *MANY, *CHAIN, "--timeout", "3", "--inject", fault)
    finished = run_script(SCRIPTS["torch"], *flags)
    if fault.endswith("raise"):  # in the driver it is a defect of the suite's own, told with its traceback
        assert "Traceback" in finished.stderr
        finished.stderr = finished.stderr.replace("Traceback", "")
    assert_failed_with_samples(finished, 1, reason)


@pytest.mark.parametrize(("runtime", "transport"), [("store", "refs"), ("torch", "gloo")])
def test_a_role_that_cannot_start_is_named(run_script, runtime, transport):
    finished = run_script(SCRIPTS[runtime], "--transport", transport, *LONG, "--inject", "role-2:1:start")
    assert (finished.code, finished.run.status, finished.run.seconds) == (1, "failed", [])
    assert re.fullmatch(r"before the first trip: .*OSError: no luck today", finished.run.reason)
    assert "role-2" in finished.run.reason


@pytest.mark.parametrize(
    ("number", "runtime", "transport"),
    [(signal.SIGINT, "graph", "zero-copy"), (signal.SIGTERM, "torch", "multiprocessing")],
    ids=lambda value: getattr(value, "name", value),
)
def test_an_interrupt_ends_the_run_and_keeps_its_samples(begin_run, number, runtime, transport):
    begun = begin_run(SCRIPTS[runtime], "--transport", transport, *LONG)
    begun.wait_for_trips(6)
    begun.process.send_signal(number)
    finished = begun.finish()
    assert begun.leftovers() == []
    assert_failed_with_samples(finished, 130, r"^interrupted after \d+ timed trips$")
    assert f"after {len(finished.run.seconds)} timed" in finished.run.reason


def test_a_supervisor_that_is_killed_leaves_nothing_and_its_record_says_so(begin_run):
    begun = begin_run(SCRIPTS["graph"], "--transport", "shm", *LONG)
    begun.wait_for_trips(6)
    begun.process.kill()
    finished = begun.finish()
    assert finished.code == -signal.SIGKILL
    assert begun.leftovers(10) == []
    assert (finished.run.status, finished.run.reason) == ("failed", "the run was killed")


def test_the_next_run_removes_what_a_run_left_whose_guard_was_killed_too_and_nothing_of_one_that_lives(begin_run):
    waiting = (*LONG, "--inject", "role-1:8:stop")  # so that three runs can share two cores
    dead = begin_run(SCRIPTS["graph"], "--transport", "mapped", *waiting)
    dead.wait_for_trips(6)
    alive = begin_run(SCRIPTS["torch"], "--transport", "multiprocessing", *waiting, temporary=dead.temporary)
    alive.wait_for_trips(6)
    for process in (dead.guard(), psutil.Process(dead.process.pid)):
        process.kill()
    dead.process.wait()
    time.sleep(1)
    (folder,) = dead.folders()
    assert len(dead.living()) > 3
    assert (SHARED_MEMORY / folder.name).exists()

    following = begin_run(SCRIPTS["torch"], "--transport", "memcpy", *CHAIN, temporary=dead.temporary).finish()
    assert following.code == 0, following.stderr
    assert dead.living() == []
    assert not folder.exists()
    assert len(alive.folders()) == 1
    assert alive.process.poll() is None
    alive.process.send_signal(signal.SIGINT)
    assert_failed_with_samples(alive.finish(), 130, "^interrupted")
    assert dead.leftovers() == []


@pytest.mark.parametrize(
    ("runtime", "transport", "fault"),
    [("graph", "shm", "policy:6:flip"), ("torch", "gloo", "policy:6:stale")],
)
def test_wrong_bytes_fail_the_run_and_are_shown_where_they_arrived(run_script, runtime, transport, fault):
    flags = ("--transport", transport, *KILOBYTES, "--warmup", "1", "--iterations", "8", "--inject", fault)
    finished = run_script(SCRIPTS[runtime], *flags)
    run = finished.run
    assert (finished.code, run.status, len(run.seconds)) == (1, "failed", 8)
    assert re.fullmatch(r"error: \d+ wrong bytes arrived, most of them in policy -> re\w+: .*\n", finished.stderr)
    assert set(run.wrong_bytes_by_field) == {"policy -> reference", "policy -> reward"}
    assert run.wrong_bytes == sum(run.wrong_bytes_by_field.values()) >= 2
    (row,) = [line for line in finished.stdout.splitlines() if line.startswith(f"{runtime} {transport}")]
    assert "WRONG" in row
