# SPDX-License-Identifier: Apache-2.0
"""Programs that fail, or whose folder cannot be written: they do under raymeter what they do without it."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.runs

SOURCE = Path(__file__).resolve().parents[2] / "src"
SECONDS = 200
KILLED = 9  # the signal
BEGIN = """
import os, signal, sys
import numpy as np, ray

ray.init(num_cpus=2, object_store_memory=300 * 10**6, include_dashboard=False, log_to_driver=False)

@ray.remote
def work(values):
    return values + 1

def run_steps(count):
    for step in range(count):
        values = np.full(10**6, step)
        print("> sum", ray.get(work.remote(values)).sum())
"""
KILL = f"{BEGIN}\nrun_steps(5)\nsys.stdout.flush()\nos.kill(os.getpid(), signal.SIGKILL)\n"
RAISE = f"""{BEGIN}
@ray.remote(max_retries=1, retry_exceptions=True)
def fail(values):
    raise ValueError("a task has failed", values.nbytes)

@ray.remote
class Fails:
    def __init__(self, values):
        raise KeyError("a constructor has failed")
    def work(self, values):
        return 1

@ray.remote
class Ends:
    def work(self, values):
        os._exit(3)

for step in range(4):
    values = np.full(10**6, step)
    fails = Fails.remote(values)
    ends = Ends.remote()
    for call in (fail.remote, fails.work.remote, ends.work.remote):
        try:
            ray.get(call(values))
        except Exception as error:
            print(">", type(error).__name__, isinstance(error, (ValueError, ray.exceptions.RayActorError)))
run_steps(2)
ray.get(fail.remote(values))
"""
STEPS = f"{BEGIN}\nrun_steps(5)\n"
NODES = """
import numpy as np, ray
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 200 * 10**6})
cluster.add_node(num_cpus=1, resources={"second": 1}, object_store_memory=200 * 10**6)
ray.init(address=cluster.address, log_to_driver=False)

@ray.remote(resources={"second": 1})
class Second:
    def work(self, values):
        return values + 1

@ray.remote(num_cpus=1)
def first(values):
    return values.sum()

second = Second.remote()
for step in range(5):
    values = np.full(10**6, step)
    print("> sum", ray.get(first.remote(second.work.remote(values))))
ray.shutdown()
cluster.shutdown()
"""
SERVER = """
import sys, ray
from ray.util.client.server.server import serve

ray.init(num_cpus=2, object_store_memory=200 * 10**6, include_dashboard=False)
server = serve("127.0.0.1", int(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
server.stop(0)
ray.shutdown()
"""
CLIENT = """
import sys
import numpy as np, ray

ray.init(sys.argv[1])

@ray.remote
def work(values):
    return values + 1

for step in range(5):
    print("> sum", ray.get(work.remote(np.full(10**5, step))).sum())
"""


@dataclass
class Behaviour:
    """What a program does: its exit code as a shell says it, and what it prints."""

    code: int
    output: str
    error: str

    @property
    def own_lines(self) -> list[str]:
        """The lines that the program itself prints, without those of Ray and of raymeter."""
        return [line for line in self.output.splitlines() if line.startswith("> ")]


def run(words: Sequence[str], folder: Path) -> Behaviour:
    return run_command([sys.executable, *words], folder)


def run_command(words: Sequence[str], folder: Path) -> Behaviour:
    process = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "RAY_DEDUP_LOGS": "0"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    code = process.returncode
    return Behaviour(code if code >= 0 else 128 - code, process.stdout, process.stderr)


def run_both(text: str, folder: Path, output: str = "out") -> tuple[Behaviour, Behaviour]:
    """Return what a program does without raymeter, and with it."""
    (folder / "program.py").write_text(text)
    alone = run(["program.py"], folder)
    profiled = run(["-m", "raymeter", "--output", output, "program.py"], folder)
    return alone, profiled


def test_a_driver_that_is_killed_leaves_its_profile(tmp_path: Path) -> None:
    alone, profiled = run_both(KILL, tmp_path)
    assert alone.code == profiled.code == 128 + KILLED
    assert profiled.own_lines == alone.own_lines
    assert len(alone.own_lines) == 5
    assert "The program was killed" in " ".join(profiled.output.split())
    assert "Moving data is" in profiled.output  # who has read it may be in the last lines


def test_tasks_and_actors_that_fail_do_so_alike(tmp_path: Path) -> None:
    alone, profiled = run_both(RAISE, tmp_path)
    assert alone.code == profiled.code == 1, profiled.error
    assert profiled.own_lines == alone.own_lines
    assert len(alone.own_lines) == 3 * 4 + 2
    last = "ValueError: ('a task has failed', 8000000)"
    assert last in alone.error and last in profiled.error
    assert "recording ended" not in profiled.error


@pytest.fixture
def client_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of a server of Ray Client, in a process of its own."""
    pytest.importorskip("grpc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "server.py").write_text(SERVER)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else the client needs the server's token
    words = [sys.executable, "server.py", str(port)]
    server = subprocess.Popen(
        words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None and server.stdout is not None
    assert any(line == "ready\n" for line in server.stdout)
    yield f"ray://127.0.0.1:{port}"
    server.stdin.close()
    server.wait(60)
    server.stdout.close()


def test_a_client_runs_and_is_told_in_one_line_why_it_is_not_recorded(
    tmp_path: Path, client_address: str
) -> None:
    (tmp_path / "program.py").write_text(CLIENT)
    alone = run(["program.py", client_address], tmp_path)
    profiled = run(["-m", "raymeter", "program.py", client_address], tmp_path)
    assert alone.code == profiled.code == 0, profiled.error
    assert profiled.own_lines == alone.own_lines
    assert len(alone.own_lines) == 5
    [line] = [line for line in profiled.error.splitlines() if line.startswith("raymeter: ")]
    assert "Ray Client cannot be recorded" in line
    assert not (tmp_path / "raymeter-profiles").exists()


def test_a_program_under_uv_run_is_recorded(tmp_path: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    (tmp_path / "program.py").write_text(STEPS)
    command = [uv, "run", "--no-project", "--python", sys.executable, "python"]
    alone = run_command([*command, "program.py"], tmp_path)
    words = ["-m", "raymeter", "--output", "out", "program.py"]
    profiled = run_command([*command, *words], tmp_path)
    assert alone.code == profiled.code == 0, alone.error + profiled.error
    assert profiled.own_lines == alone.own_lines
    assert len(alone.own_lines) == 5
    assert "driver -> work" in profiled.output


def test_a_cluster_of_several_raylets_is_recorded_on_all_of_them(tmp_path: Path) -> None:
    alone, profiled = run_both(NODES, tmp_path)
    assert alone.code == profiled.code == 0, profiled.error
    assert profiled.own_lines == alone.own_lines
    assert "Second.work -> first" in profiled.output
    assert "not recorded" not in profiled.output + profiled.error


def mount(folder: Path, options: str) -> bool:
    """Mount a file system in memory; return whether this is allowed."""
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a disk of 16 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if not mount(folder, "size=16k"):
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with a program, in which nothing can be written."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    if not mount(folder, "size=100k"):
        pytest.skip("mounting is not allowed here")
    (folder / "program.py").write_text(STEPS)
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_ends_recording_and_not_the_program(tmp_path: Path, small_disk: Path) -> None:
    alone, profiled = run_both(STEPS, tmp_path, str(small_disk))
    assert alone.code == profiled.code == 0, profiled.error
    assert profiled.own_lines == alone.own_lines
    assert len(alone.own_lines) == 5
    lines = [line for line in profiled.error.splitlines() if line.startswith("raymeter: ")]
    assert any("No space left" in line for line in lines), profiled.error
    assert "Traceback" not in profiled.error


def test_a_program_in_a_read_only_folder_has_its_profile_elsewhere(read_only: Path) -> None:
    alone = run(["program.py"], read_only)
    profiled = run(["-m", "raymeter", "program.py"], read_only)
    assert alone.code == profiled.code == 0, profiled.error
    assert profiled.own_lines == alone.own_lines
    words = "raymeter-profiles: Read-only file system. The profile goes to "
    [elsewhere] = [line for line in profiled.error.splitlines() if words in line]
    assert "Moving data" in profiled.output
    folder = Path(elsewhere.partition(words)[2])
    assert (folder / "profile.txt").exists()
    shutil.rmtree(folder)
    named = run(["-m", "raymeter", "--output", "out", "program.py"], read_only)
    assert (named.code, named.output) == (2, "")  # before the program begins
    assert "Read-only file system. Give another folder" in named.error
