# SPDX-License-Identifier: Apache-2.0
"""Real programs under raymeter: what they do and return is what they do without it, and no value is recorded."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.runs

SOURCE = Path(__file__).resolve().parents[2] / "src"
SECRETS = """
import numpy as np, ray

def secret(number):
    return "".join(["SEC", "RET_", str(number)])

@ray.remote
class Actor:
    def __init__(self, value):
        self.value = value

    def work(self, message):
        return {secret(1): secret(2) * 50_000, "obs": np.full(100_000, 987654321)}

    def fail(self):
        raise ValueError(secret(3))

def main():
    ray.init(num_cpus=2, object_store_memory=200 * 10**6)
    captured = {secret(4): secret(5) * 50_000}

    @ray.remote
    def closure(text):
        return len(captured)

    actor = Actor.remote({secret(6): secret(7) * 50_000})
    for step in range(4):
        message = {secret(8): [987654321] * 50_000, secret(9): secret(10) * 50_000, "obs": [secret(11)] * 50_000}
        ray.get(actor.work.remote(ray.put(message)))
        ray.get(closure.remote(secret(12) * 50_000))
        try:
            ray.get(actor.fail.remote())
        except ValueError:
            pass
    ray.shutdown()

main()
"""
UNUSUAL = """
import os, sys, threading
import numpy as np, ray

def set_up():
    os.environ["SET_UP"] = "yes"

def users_hook(runtime_env):
    return {**(runtime_env or {}), "env_vars": {"HOOKED": "yes"}}

@ray.remote
def work(values):
    return os.environ.get("SET_UP"), os.environ.get("HOOKED")

if __name__ == "__main__":
    ray.init(num_cpus=1, object_store_memory=200 * 10**6, runtime_env={"worker_process_setup_hook": set_up})
    for step in range(4):
        assert ray.get(work.remote(np.full(10**6, step))) == ("yes", "yes")
    thread = threading.Thread(target=lambda: sys.exit(5))
    thread.start()
    thread.join()
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    ray.shutdown()
    ray.init(num_cpus=1, object_store_memory=200 * 10**6)
    assert ray.get(work.remote(np.full(10**6, step)))[1] == "yes"
    sys.exit(3)
"""

GENERATOR = """
import ray

@ray.remote(num_returns="streaming")
def work():
    for number in range(3):
        got = yield number
        yield type(got).__name__

ray.init(num_cpus=1, object_store_memory=200 * 10**6)
print("items:", [ray.get(item) for item in work.remote()])
"""


def profile(
    text: str, folder: Path, words: Sequence[str] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program under raymeter, with its profile in the folder "out"."""
    (folder / "program.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "raymeter", "--output", "out", *words, "program.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{folder}", **variables},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_no_value_is_in_any_file_of_a_profile(tmp_path: Path) -> None:
    process = profile(SECRETS, tmp_path, ["--html"])
    assert process.returncode == 0, process.stderr
    files = [path for path in (tmp_path / "out").iterdir() if path.is_file()]
    texts = {path.name: path.read_text() for path in files}
    assert "profile.html" in texts
    assert any("obs" in text for text in texts.values())
    for name, text in texts.items():
        assert "SECRET_" not in text, name
        assert "987654321" not in text, name


def test_an_unusual_program_does_what_it_does_without_raymeter(tmp_path: Path) -> None:
    process = profile(UNUSUAL, tmp_path, RAY_RUNTIME_ENV_HOOK="program.users_hook")
    assert process.returncode == 3, process.stderr
    assert "Moving data" in process.stdout


def test_a_generator_gets_from_ray_what_it_gets_without_raymeter(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(GENERATOR)
    plain = subprocess.run(
        [sys.executable, "plain.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    process = profile(GENERATOR, tmp_path)
    assert process.returncode == 0, process.stderr
    (expected,) = [line for line in plain.stdout.splitlines() if line.startswith("items:")]
    assert expected in process.stdout.splitlines()
