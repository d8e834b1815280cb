"""Check what a run says, keeps and leaves behind when something goes wrong in the middle of it."""

import re
import signal
import time

import psutil
import pytest
from conftest import KILOBYTES, SCRIPTS, SHARED_MEMORY

MANY = ("--warmup", "0", "--iterations", "1000000")
CHAIN = ("--flow", "chain", "--actors", "2")


def assert_failed_with_samples(finished, code, reason):
    """Check that the record has the finished iterations, and that it says the same as the screen."""
    assert finished.code == code, finished.stderr
    run = finished.run
    assert run.status == "failed"
    assert re.search(reason, run.reason), run.reason
    assert f"error: {run.reason}\n" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert len(run.seconds) >= 4
    assert run.wrong_bytes == 0
    last = finished.stdout.splitlines()[-1].split()[2].replace(",", "")
    assert float(last) == pytest.approx(sum(run.seconds), rel=0.01)


@pytest.mark.parametrize(
    ("runtime", "transport", "fault", "reason"),
    [
        ("rdt", "gloo", "actor-1:6:die", r"^iteration 6: .*\bactor-1\b.* died"),
        ("torch", "multiprocessing", "actor-1:6:segfault", r"^iteration 6: actor-1 died$"),
        ("torch", "mapped", "actor-2:6:stop", r"^iteration 6: .*3 s \(--timeout\).*actor-2.* stopped"),
        ("torch", "gloo", "actor-1:6:hang", r"^iteration 6: .*actor-1 .*5"),
        ("store", "refs", "actor-2:6:raise", r"^iteration 6: actor-2 raised OSError: injected fault$"),
    ],
)
def test_an_actor_that_fails_is_named_and_samples_are_kept(run_script, runtime, transport, fault, reason):
    flags = ("--transport", transport, *MANY, *CHAIN, "--inject", fault)
    timeout = ("--timeout", "3") if fault.endswith(("stop", "hang")) else ()
    assert_failed_with_samples(run_script(SCRIPTS[runtime], *flags, *timeout), 1, reason)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("driver:6:die", r"^iteration 6: the driver's process ended with signal SIGKILL$"),
        ("driver:6:hang", r"^iteration 6: .*3 s \(--timeout\)"),
        ("driver:6:garbage", r"^iteration 6: .*report"),
        ("driver:6:raise", r"^iteration 6: .*injected fault"),
    ],
)
def test_a_driver_process_that_fails_is_reported_by_its_supervisor(run_script, fault, reason):
    flags = ("--transport", "memcpy", *MANY, *CHAIN, "--timeout", "3", "--inject", fault)
    finished = run_script(SCRIPTS["torch"], *flags)
    if fault.endswith("raise"):  # an error of the suite's own is shown with its traceback
        assert "Traceback" in finished.stderr
        finished.stderr = finished.stderr.replace("Traceback", "")
    assert_failed_with_samples(finished, 1, reason)


def test_an_actor_that_cannot_start_is_named(run_script):
    flags = ("--transport", "refs", *MANY, *CHAIN, "--inject", "actor-2:1:start")
    finished = run_script(SCRIPTS["store"], *flags)
    assert (finished.code, finished.run.status, finished.run.seconds) == (1, "failed", [])
    assert re.fullmatch(r"before the first iteration: .*actor-2.*OSError: injected fault", finished.run.reason)


@pytest.mark.parametrize(
    ("number", "runtime", "transport"),
    [(signal.SIGINT, "graph", "zero-copy"), (signal.SIGTERM, "torch", "multiprocessing")],
    ids=lambda value: getattr(value, "name", value),
)
def test_an_interrupt_ends_the_run_and_keeps_its_samples(begin_run, number, runtime, transport):
    begun = begin_run(SCRIPTS[runtime], "--transport", transport, *MANY, *CHAIN)
    begun.wait_for_iterations(6)
    begun.process.send_signal(number)
    finished = begun.finish()
    assert begun.leftovers() == []
    assert_failed_with_samples(finished, 130, r"^interrupted after \d+ timed iterations$")
    assert f"after {len(finished.run.seconds)} timed" in finished.run.reason


def test_a_script_that_is_killed_leaves_nothing_and_its_record_says_so(begin_run):
    """Ray's agents set their own process title, which hides them from a search by environment variable."""
    begun = begin_run(SCRIPTS["graph"], "--transport", "shm", *MANY, *CHAIN)
    begun.wait_for_iterations(6)
    begun.process.kill()
    finished = begun.finish()
    assert finished.code == -signal.SIGKILL
    assert begun.leftovers(10) == []
    assert (finished.run.status, finished.run.reason) == ("failed", "the run was killed")


def test_a_run_whose_guard_is_killed_leaves_nothing(begin_run):
    begun = begin_run(SCRIPTS["torch"], "--transport", "gloo", *MANY, *CHAIN)
    begun.wait_for_iterations(6)
    begun.guard().kill()
    time.sleep(0.5)
    begun.process.send_signal(signal.SIGINT)
    begun.finish()
    assert begun.leftovers(10) == []


def test_the_next_run_removes_what_a_killed_script_and_guard_left_and_nothing_of_a_living_run(begin_run):
    waiting = (*MANY, *CHAIN, "--inject", "actor-1:8:stop")  # so that three runs can share two cores
    dead = begin_run(SCRIPTS["graph"], "--transport", "mapped", *waiting)
    dead.wait_for_iterations(6)
    alive = begin_run(SCRIPTS["torch"], "--transport", "multiprocessing", *waiting, temporary=dead.temporary)
    alive.wait_for_iterations(6)
    guard, supervisor = dead.guard(), psutil.Process(dead.process.pid)
    (folder,) = dead.run_folders()
    for process in (guard, supervisor):
        process.suspend()
    for process in (guard, supervisor):
        process.kill()
    dead.process.wait()
    assert folder.exists() and (SHARED_MEMORY / folder.name).exists()

    following = begin_run(SCRIPTS["torch"], "--transport", "memcpy", *CHAIN, temporary=dead.temporary).finish()
    assert following.code == 0, following.stderr
    assert not folder.exists()
    assert len(alive.run_folders()) == 1
    assert alive.process.poll() is None
    alive.process.send_signal(signal.SIGINT)
    assert_failed_with_samples(alive.finish(), 130, "^interrupted")
    assert dead.leftovers(10) == []


def test_wrong_bytes_fail_the_run_and_are_shown_at_their_edges(run_script):
    flags = ("--transport", "gloo", *KILOBYTES, "--iterations", "8", "--inject", "policy:6:stale")
    finished = run_script(SCRIPTS["torch"], *flags)
    run = finished.run
    assert (finished.code, run.status, len(run.seconds)) == (1, "failed", 8)
    assert re.search(r"error: .*\d+ .*bytes.* policy -> re\w+", finished.stderr)
    assert set(run.wrong_bytes_by_field) == {"policy -> reference", "policy -> reward"}
    assert run.wrong_bytes == sum(run.wrong_bytes_by_field.values()) >= 2
    (line,) = [line for line in finished.stdout.splitlines() if line.startswith("torch gloo")]
    assert "WRONG" in line
