# SPDX-License-Identifier: Apache-2.0
"""How a program is started: its environment, its folder, and the signals that it gets."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from raymeter.commands import memory, run
from raymeter.errors import UserError
from raymeter.launch import HOOK, UV_RUN, environment_of, may_be_client

from raymeter import command_line

SOURCE = Path(__file__).resolve().parents[2] / "src"
SLEEPER = """
import pathlib, signal, sys, time
def end(number, frame):
    sys.exit(50 + number)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
pathlib.Path("ready").touch()
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start_sleeper(folder: Path) -> subprocess.Popen[bytes]:
    """Start a program under raymeter that ends with 50 and the number of the signal that it gets."""
    (folder / "sleeper.py").write_text(SLEEPER)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    words = [sys.executable, "-m", "raymeter", "sleeper.py"]
    process = subprocess.Popen(words, cwd=folder, env=environment, start_new_session=True)
    for _ in range(400):
        if (folder / "ready").exists():
            return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the program did not start")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_goes_to_the_program_and_its_exit_code_is_kept(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = start_sleeper(tmp_path)
    process.send_signal(number)
    assert process.wait(20) == 50 + number


def test_a_program_of_another_environment_finds_raymeter_and_no_neighbour(tmp_path: Path) -> None:
    environment = environment_of({"PYTHONPATH": "/home/me"}, tmp_path / "out", 1)
    ours, users = environment["PYTHONPATH"].split(os.pathsep)
    assert users == "/home/me"
    assert os.listdir(ours) == ["raymeter"]


def test_the_hooks_of_the_user_are_remembered(tmp_path: Path) -> None:
    own = {"RAY_RUNTIME_ENV_HOOK": "mine.hook", UV_RUN: "0"}
    outer = environment_of(own, tmp_path / "a", 1)
    inner = environment_of(outer, tmp_path / "b", 1)  # the program starts raymeter itself
    for environment in (outer, inner):
        assert environment["RAY_RUNTIME_ENV_HOOK"] == HOOK
        assert environment["RAYMETER_USERS_HOOK"] == "mine.hook"
        assert environment["RAYMETER_USERS_UV_RUN"] == "0"


@pytest.mark.parametrize(
    ("text", "words", "address", "is_kept"),
    [
        ("", ["train.py"], "ray://head:10001", True),
        ("", ["train.py", "--address=ray://head:10001"], "", True),
        ("ray.init('ray://head:10001')", ["train.py"], "", True),
        ("ray.init('ray://head:10001')", ["-m", "train"], "", True),
        ("ray.init()", ["train.py"], "", False),
    ],
)
def test_a_client_keeps_rays_own_hook_for_uv_run(
    tmp_path: Path, text: str, words: list[str], address: str, is_kept: bool
) -> None:
    (tmp_path / "train.py").write_text(text)
    own = {"RAY_ADDRESS": address}
    is_client = may_be_client(own, words, tmp_path)
    outer = environment_of(own, tmp_path / "a", 1, is_client)
    assert outer.get(UV_RUN, "unset") == ("unset" if is_kept else "0")
    off = environment_of({**own, UV_RUN: "0"}, tmp_path / "b", 1, is_client)
    assert off[UV_RUN] == "0"


@pytest.mark.parametrize("verb", [["train.py"], ["memory", "train.py"]])
def test_each_verb_that_runs_a_program_asks_whether_it_is_a_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(UV_RUN, raising=False)
    text = f"import os; open('seen', 'w').write(os.environ.get('{UV_RUN}', 'unset'))  # "
    for address, seen in (("", "0"), ("ray://head", "unset")):
        Path("train.py").write_text(text + address)
        assert command_line.main(verb) == 0
        assert Path("seen").read_text() == seen


def test_profiles_are_left_out_of_folders_that_ray_uploads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = run.make_folder(None, "train.py")
    assert folder.parent == Path("raymeter-profiles")
    assert (folder / ".gitignore").read_text() == "*\n"


def test_in_a_folder_that_cannot_be_written_the_profile_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Path("raymeter-profiles").touch()  # no folder can be made there
    folder = run.make_folder(None, "train.py")
    assert folder.parent == tmp_path
    assert (folder / ".gitignore").exists()
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(f"The profile goes to {folder}")


def test_a_folder_that_cannot_be_written_is_one_line_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Give another folder with --output"):
        run.make_folder(tmp_path / "file" / "out", "train.py")


@pytest.mark.parametrize("verb", [[], ["memory"]])
@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (
            "",
            0,
            "Ray has not called raymeter. If the program got as far as ray.init, it has removed",
        ),
        ("raise SystemExit(3)", 3, "before the program ended with exit code 3. If the program got"),
    ],
)
def test_a_program_without_ray_leaves_one_line_and_no_folder(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    code: int,
    words: str,
    verb: list[str],
) -> None:
    (folder / "train.py").write_text(text)
    assert command_line.main([*verb, "train.py"]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert words in line
    assert not Path("raymeter-profiles").exists()


def test_a_client_is_warned_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "ray://somewhere:10001")
    Path("train.py").write_text("open('ran', 'w').close()")
    assert command_line.main(["train.py"]) == 0
    [line] = capsys.readouterr().err.splitlines()
    assert "Ray Client cannot be recorded" in line
    assert Path("ran").exists()


@pytest.mark.parametrize("verb", [[], ["memory"]])
def test_of_a_program_that_names_a_client_this_is_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    Path("train.py").write_text("address = 'ray://somewhere:10001'")
    assert command_line.main([*verb, "train.py"]) == 0
    [line] = capsys.readouterr().err.splitlines()
    assert "has an address of Ray Client (ray://). Ray Client cannot be recorded." in line
    assert "RAY_RUNTIME_ENV_HOOK" not in line


@pytest.mark.parametrize("verb", [[], ["memory"]])
def test_an_error_of_raymeter_keeps_the_exit_code_of_the_program(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: list[str],
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run.show, "show_new_profile", fail)
    monkeypatch.setattr(memory, "show_folder", fail)
    text = "import os; open(os.environ['RAYMETER_FOLDER'] + '/a.jsonl', 'w').close(); exit(3)"
    Path("train.py").write_text(text)
    assert command_line.main([*verb, "--output", "out", "train.py"]) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert "ZeroDivisionError: a bug" in line
    assert "ZeroDivisionError" in Path("out", "error.txt").read_text()
