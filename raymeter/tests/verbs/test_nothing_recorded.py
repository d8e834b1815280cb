# SPDX-License-Identifier: Apache-2.0
"""If nothing was recorded, the reason is said that was seen, such as a program that has changed its environment."""

from pathlib import Path

import pytest

pytest.importorskip("ray")
from raymeter.commands import without_hook

from raymeter import command_line

RAY_INIT = "from raymeter.inside import hook; hook.add_to_runtime_env(None)\n"  # what Ray calls
RAYLET = "subprocess.run(['bash', '-c', 'exec -a raylet sleep 1'])\n"  # what ray.init starts


def run(folder: Path, text: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    """Run raymeter with a program, and return the last line of raymeter. The program leaves no folder."""
    (folder / "train.py").write_text(f"import os, subprocess\n{text}")
    assert command_line.main(["train.py"]) == code
    assert not Path("raymeter-profiles").exists()
    *_, line = capsys.readouterr().err.splitlines()
    return line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(without_hook, "SECONDS", 0.05)
    monkeypatch.setattr(without_hook, "MAX_SHARE", 1.0)
    return tmp_path


def test_a_removed_folder_is_the_reason(folder, capsys):
    line = run(folder, f"del os.environ['RAYMETER_FOLDER']\n{RAY_INIT}", capsys)
    assert "nothing was recorded: the program has removed RAYMETER_FOLDER from os.environ" in line


def test_a_replaced_folder_is_the_reason_and_has_the_recording(folder, capsys):
    line = run(folder, f"os.environ['RAYMETER_FOLDER'] = 'elsewhere'\n{RAY_INIT}", capsys)
    assert line.endswith("to elsewhere, where it was recorded: raymeter show elsewhere")
    assert list(Path("elsewhere").glob("*.jsonl"))


@pytest.mark.parametrize(("text", "is_seen"), [
    ("os.environ.clear()\nos.environ['PATH'] = '/usr/bin:/bin'\n", True),
    ("os.environ['RAY_RUNTIME_ENV_HOOK'] = 'users.hook'\n", True),
    ("", False),
])  # fmt: skip
def test_a_cluster_that_starts_without_the_hook_is_the_reason(text, is_seen, folder, capsys):
    line = run(folder, f"{text}{RAYLET}", capsys)
    has_reason = "has removed or replaced RAY_RUNTIME_ENV_HOOK in os.environ before" in line
    assert has_reason == is_seen
    assert ("it is a client" in line) != is_seen


def test_a_program_that_fails_in_an_import_is_not_said_to_be_a_client(folder, capfd):
    line = run(folder, "import no_such_module\n", capfd, code=1)
    assert "nothing was recorded: Ray has not called raymeter before the program ended" in line
    assert "with exit code 1. If the program got as far as ray.init, it has removed" in line


def test_other_profiles_stay(folder, capsys):
    earlier = Path("raymeter-profiles", "earlier")
    earlier.mkdir(parents=True)
    Path("train.py").write_text("")
    assert command_line.main(["train.py"]) == 0
    assert list(earlier.parent.iterdir()) == [earlier]


def test_a_run_of_two_programs_says_the_reason_too(folder, capsys):
    Path("train.py").write_text(f"import os\ndel os.environ['RAYMETER_FOLDER']\n{RAY_INIT}")
    assert command_line.main(["compare", "--runs", "1", "train.py", "--", "train.py"]) == 2
    error = capsys.readouterr().err
    assert "has no profile: the program has removed RAYMETER_FOLDER from os.environ" in error
