"""A user's day: a cluster that is there already, a reader that leaves, trips by the clock, rows of one's choice."""

import os
import subprocess
import sys
import time

import psutil
import pytest
from conftest import KILOBYTES, MARK, ROOT, SCRIPTS, SHARED_MEMORY

from common.record import files

PORT = "26379"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A plain `ray start --head` that asks for its user's token, on the address that it gives back."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
    flags = ("--head", "--port", PORT, "--num-cpus", "2", "--include-dashboard=false", "--disable-usage-stats")
    memory = ("--object-store-memory", "200000000", "--temp-dir", f"/tmp/ray-{os.getpid()}")
    ray = os.path.join(os.path.dirname(sys.executable), "ray")
    environment = os.environ | {"RAY_AUTH_MODE": "token", "OF_TEST": str(tmp_path)}
    subprocess.run([ray, "start", *flags, *memory], env=environment, timeout=60, check=True, capture_output=True)
    yield f"127.0.0.1:{PORT}"
    for process in psutil.process_iter():
        try:
            if process.environ().get("OF_TEST") == str(tmp_path):
                process.kill()
        except psutil.Error:
            pass


def semaphores():
    """Of channels, whoever made them; but for another test's run, which bears its mark and may be under way."""
    found = set()
    for path in SHARED_MEMORY.glob("sem.*"):
        if path.name.startswith(("sem.obj", "sem.hdr")):
            maker = path.name[len("sem.obj") :].partition("-")[0]
            try:
                marked = MARK in psutil.Process(int(maker)).environ()
            except (psutil.Error, ValueError):
                marked = False
            found |= set() if marked else {path.name}
    return found


def test_a_cluster_that_was_there_is_joined_as_written_and_keeps_nothing_of_the_run(begin_run, cluster):
    before = semaphores()
    flags = ("--transport", "zero-copy", "--iterations", "3", "--address", cluster, *KILOBYTES)
    finished = begin_run(SCRIPTS["graph"], *flags).finish()
    assert (finished.code, finished.run.status) == (0, "ok"), finished.stderr
    assert "graph zero-copy --address" in finished.stdout
    broken = begin_run(
        SCRIPTS["graph"], *flags[:2], "--iterations", "30", *flags[4:], "--inject", "policy:6:die"
    ).finish()
    assert (broken.code, broken.run.status) == (1, "failed")
    deadline = time.monotonic() + 5
    while semaphores() - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert semaphores() - before == set()


def test_a_run_outlasts_the_reader_of_its_screen(tmp_path):
    command = [sys.executable, str(SCRIPTS["torch"]), "--transport", "memcpy", "--iterations", "3", *KILOBYTES]
    with subprocess.Popen(
        [*command, "--output", str(tmp_path / "x.json")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        run.stdout.close()
        assert (run.stderr.read(), run.wait(60)) == ("", 0)
    (found,) = files.load(tmp_path / "x.json").runs
    assert (found.status, len(found.seconds)) == ("ok", 3)


def test_trips_can_be_counted_by_the_clock(run_script):
    finished = run_script(SCRIPTS["torch"], "--transport", "memcpy", "--duration", "500ms", *KILOBYTES)
    assert finished.code == 0, finished.stderr
    run = finished.run
    assert len(run.seconds) > 3
    assert sum(run.seconds) < 5
    assert finished.record.arguments["duration"] == 0.5


def test_a_script_measures_its_row_in_several_processes(run_script):
    finished = run_script(SCRIPTS["torch"], "--transport", "memcpy", "--runs", "2", "--iterations", "3", *KILOBYTES)
    assert (finished.code, finished.stderr) == (0, "")
    record = finished.record
    assert [(run.order, run.status, len(run.seconds)) for run in record.runs] == [(0, "ok", 3), (1, "ok", 3)]
    assert sum(line.startswith("  run ") for line in finished.stdout.splitlines()) == 2
    assert sum(line.startswith("torch memcpy  ") for line in finished.stdout.splitlines()) == 1


def test_a_question_is_answered_in_one_command(tmp_path):
    flow = "rollout-1, rollout-2 -> trainer: tokens int64 80kB, logprobs float32 40kB"
    rows = ("torch memcpy", "torch gloo --in-flight 2 --message packed")
    command = [sys.executable, "benchmark.py", "--flow", flow, "--iterations", "4", "--rows", *rows]
    done = subprocess.run(
        [*command, "--runs", "2", "--output-dir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    records = [files.load(path) for path in sorted(tmp_path.glob("*.json"))]
    turns = [[record.runs[turn].order for record in records] for turn in (0, 1)]
    assert [sorted(turn) for turn in turns] == [[0, 1], [2, 3]]
    assert [record.row.flow for record in records] == [flow] * 2
    for name in rows:
        assert sum(line.startswith(f"{name}  ") for line in done.stdout.splitlines()) == 1
    assert "4 of 4" in done.stdout and "0 s left" in done.stdout
    assert (tmp_path / "benchmark_result.png").exists()


@pytest.mark.parametrize(
    "script", [*SCRIPTS.values(), ROOT / "benchmark.py", ROOT / "plot_results.py"], ids=lambda p: p.stem
)
def test_without_its_packages_a_script_says_how_to_get_them(script):
    done = subprocess.run(
        [sys.executable, "-E", "-s", "-S", str(script), "x"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "is not installed: run make, or pip install -r requirements.txt" in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_is_refused_or_waived_leaves_no_record_behind(tmp_path):
    before = set((ROOT / "results").glob("*.json"))
    for flags in (["--transport", "nccl"], ["--address", "127.0.0.1:1"], ["--iterations", "0"]):
        done = subprocess.run([sys.executable, str(SCRIPTS["rdt"]), *flags], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert set((ROOT / "results").glob("*.json")) == before


def benchmark(folder, *flags):
    command = [sys.executable, str(ROOT / "benchmark.py"), "--rows", "torch memcpy", "torch memcpy --huge-pages"]
    small = [*KILOBYTES, "--iterations", "5", "--output-dir", str(folder)]
    return subprocess.run([*command, *small, *flags], capture_output=True, text=True, timeout=120)


def test_what_was_stopped_goes_on_and_what_was_finished_stays(tmp_path):
    folder = tmp_path / "records"
    assert benchmark(folder, "--runs", "2").returncode == 0
    first, second = sorted(folder.glob("*.json"))
    kept, stopped = files.load(first), files.load(second)
    stopped.runs[1].status, stopped.runs[1].reason = "failed", "interrupted after 2 timed trips"
    files.save(second, stopped)
    again = benchmark(folder, "--runs", "3", "--continue")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count(" left)") == 3  # the third of the first row, the second and third of the other
    assert files.load(first).runs[:2] == kept.runs and files.load(second).runs[:1] == stopped.runs[:1]
    assert [[run.status for run in files.load(path).runs] for path in (first, second)] == [["ok"] * 3] * 2
    other = benchmark(folder, "--runs", "3", "--continue", "--timeout", "60")
    assert other.returncode == 2 and "was measured otherwise" in other.stderr and len(other.stderr.splitlines()) == 1
    nowhere = benchmark(tmp_path / "nowhere", "--continue")
    assert nowhere.returncode == 2 and "give the folder of the earlier call" in nowhere.stderr
