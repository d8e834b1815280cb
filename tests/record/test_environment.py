"""What a record says of the machine: whatever can be known, nothing private, and never an error."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from common.record import environment
from common.record.environment import MACHINE_KEYS, PROBES, describe_environment, machine_line

SECRETS = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "RAY_AUTH_TOKEN", "GITHUB_TOKEN", "NCCL_SECRET", "HTTPS_PROXY")


def fail(*_, **__):
    raise RuntimeError("this machine is strange")


def test_a_probe_that_fails_says_none_and_takes_no_other_with_it(monkeypatch):
    monkeypatch.setattr(environment, "PROBES", {"first": lambda: 1, "strange": fail, "last": lambda: [3]})
    assert describe_environment() == {"first": 1, "strange": None, "last": [3]}


def test_a_machine_without_git_has_no_commit(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = describe_environment()
    assert (found["git_commit"], found["git_dirty"]) == (None, None)
    assert found["python"]


def test_the_commit_is_that_of_the_suite_wherever_it_is_started(monkeypatch, tmp_path):
    root = Path(environment.__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    monkeypatch.chdir(tmp_path)
    assert PROBES["git_commit"]() == commit.stdout.strip()


def test_no_secret_no_host_and_no_home_gets_into_a_record(monkeypatch, tmp_path):
    home = tmp_path / "somebodys-home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "somebodys-name")
    for name in SECRETS:
        monkeypatch.setenv(name, f"secret-of-{name}")
    found = json.loads(json.dumps(describe_environment()))
    assert set(MACHINE_KEYS) <= set(found)
    text = json.dumps(found)
    assert not [name for name in SECRETS if f"secret-of-{name}" in text or name in text]
    for private in (socket.gethostname(), str(home), "somebodys-name", str(Path(environment.__file__).parent)):
        assert private not in text


def test_variables_that_change_how_bytes_move_are_kept(monkeypatch):
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    variables = PROBES["variables"]()
    assert variables["NCCL_P2P_DISABLE"] == "1"
    assert "OMP_NUM_THREADS" not in variables
    assert set(variables) <= set(os.environ)


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("cuda: Optional[str] = None", None),
        ("cuda: Optional[str] = '12.8'", "12.8"),
        ("cuda = '13.0'", "13.0"),
        ("xpu = '1'", None),
    ],
)
def test_the_cuda_of_torch_is_read_without_importing_it(monkeypatch, tmp_path, text, cuda):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2'\n{text}\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert environment.cuda_version() == cuda


def test_the_line_about_the_machine_names_its_gpus_and_how_many():
    gpus = ["Some GPU"] * 8
    line = machine_line({"gpus": gpus, "cpu_model": "Some CPU", "logical_cpus": 96, "versions": {"ray": "2.60.0"}})
    assert "8 x Some GPU" in line
    assert "96 x Some CPU" in line
    assert "ray 2.60.0" in line
    assert "no GPU" in machine_line({"gpus": []})
