"""Provoke each fault, and check what the run says, keeps and leaves behind.

`make faults` provokes all faults of faults.py and writes results/evidence/faults.jsonl; `make test` the quick ones.
"""

import re
import signal
import subprocess
import time

import psutil
import pytest
from conftest import KILOBYTES, ROOT, SHARED_MEMORY
from fault_tables import write_tables
from faults import CHAIN, FAULTS, MANY, store_result

CAN_MOUNT = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
CASES = [pytest.param(fault, id=fault.name, marks=() if fault.is_quick else pytest.mark.long) for fault in FAULTS]


@pytest.mark.parametrize("fault", CASES)
def test_a_fault_is_named_and_leaves_nothing_behind(begin_run, fault):
    if "unshare" in fault.prefix and not CAN_MOUNT:
        pytest.skip("unshare --mount is not allowed, which makes the small file system: run it as root")
    inject = ("--inject", fault.inject) if fault.inject else ()
    flags = ("--transport", fault.transport, *fault.flags, *inject)
    begin = time.monotonic()
    script = begin_run(fault.runtime, *flags, prefix=fault.prefix, output=fault.output)
    if fault.action:
        if fault.after:
            script.wait_for_iterations(fault.after)
        else:
            while not script.run_folders():
                time.sleep(0.01)
            time.sleep(1)
        fault.action(script)
    finished = script.finish()
    seconds, left = time.monotonic() - begin, script.leftovers(10)
    message = finished.stderr.strip().splitlines()[-1] if finished.stderr.strip() else ""
    if fault.keeps or not message:
        message = finished.run.reason or "ok"
    store_result(fault.name, f"{fault.runtime} {fault.transport}", message, finished.code, seconds, left)
    assert left == []
    assert re.search(fault.expected, message), message
    assert finished.code == fault.code, finished.stderr
    if fault.keeps:
        run = finished.run
        assert run.status == "failed" and len(run.seconds) >= fault.keeps
        assert f"error: {run.reason}\n" in finished.stderr
        last = finished.stdout.splitlines()[-1].split()[2].replace(",", "")
        assert float(last) == pytest.approx(sum(run.seconds), rel=0.01)


@pytest.mark.long
def test_the_next_run_removes_what_a_killed_script_and_guard_left_and_nothing_of_a_living_run(begin_run):
    waiting = (*MANY, *CHAIN, "--inject", "actor-1:8:stop")  # so that three runs can share two cores
    dead = begin_run("graph", "--transport", "mapped", *waiting)
    dead.wait_for_iterations(6)
    alive = begin_run("torch", "--transport", "multiprocessing", *waiting, temporary=dead.temporary)
    alive.wait_for_iterations(6)
    guard, supervisor = dead.guard(), psutil.Process(dead.process.pid)
    (folder,) = dead.run_folders()
    for process in (guard, supervisor):
        process.suspend()
    for process in (guard, supervisor):
        process.kill()
    dead.process.wait()
    assert folder.exists() and (SHARED_MEMORY / folder.name).exists()

    following = begin_run("torch", "--transport", "memcpy", *CHAIN, temporary=dead.temporary).finish()
    assert following.code == 0, following.stderr
    assert not folder.exists()
    assert len(alive.run_folders()) == 1
    assert alive.process.poll() is None
    alive.process.send_signal(signal.SIGINT)
    assert alive.finish().code == 130
    assert dead.leftovers(10) == []


def test_wrong_bytes_are_shown_at_their_edges(run_script):
    flags = ("--transport", "gloo", *KILOBYTES, "--iterations", "8", "--inject", "policy:6:stale")
    finished = run_script("torch", *flags)
    run = finished.run
    assert (finished.code, run.status, len(run.seconds)) == (1, "failed", 8)
    assert re.search(r"error: .*\d+ .*bytes.* policy -> re\w+", finished.stderr)
    assert set(run.wrong_bytes_by_field) == {"policy -> reference", "policy -> reward"}
    assert run.wrong_bytes == sum(run.wrong_bytes_by_field.values()) >= 2
    (line,) = [line for line in finished.stdout.splitlines() if line.startswith("torch gloo")]
    assert "WRONG" in line


def test_the_tables_of_the_page_are_those_of_make_faults(tmp_path):
    published = (ROOT / "docs" / "failures.md").read_text()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "failures.md").write_text(published.replace(" | 0 |\n", " | 9 |\n"))
    write_tables(tmp_path)
    assert (tmp_path / "docs" / "failures.md").read_text() == published
