"""Explain messages of programs and of files."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT

from dataflow import explain
from dataflow.commands.explain import main
from dataflow.errors import UsageError

EXPLAIN = [sys.executable, "-m", "dataflow", "explain"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def test_explain_finds_the_cause_and_measures_the_change(capsys):
    batch = torch.arange(64 * 512).reshape(64, 512)
    explain({"views": list(batch.unbind()), "array": np.ones(1000)})
    lines = capsys.readouterr().out.splitlines()
    views = next(line for line in lines if line.startswith("views"))
    array = next(line for line in lines if line.startswith("array"))
    milliseconds, after = map(float, views.split()[7:9])
    assert after < milliseconds
    assert "view: clone()" in views
    assert array.split()[-2:] == ["-", "-"]


@pytest.mark.parametrize("columns", ["80", "100"])
def test_explain_fits_the_width_of_the_terminal(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", columns)
    batch = torch.arange(64 * 512).reshape(64, 512)
    explain({"a_field_with_a_name_that_is_long": list(batch.unbind()), "strided": batch.t()[::2]})
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= int(columns)
    assert "clone()," in output.split()  # words stay whole


@pytest.mark.parametrize("name", ["a.pt", "a.pth", "without_suffix"])
@pytest.mark.parametrize("trust", [[], ["--trust"]])
def test_files_of_torch_save_are_read_with_and_without_trust(tmp_path, capsys, name, trust):
    torch.save({"tokens": torch.ones(1000)}, tmp_path / name)
    assert main([str(tmp_path / name), *trust]) == 0
    assert "tokens" in capsys.readouterr().out


def test_a_pickle_is_read_only_with_trust_and_without_torch(tmp_path):
    file = tmp_path / "a.pkl"
    file.write_bytes(pickle.dumps({"ints": [1, 2]}))
    with pytest.raises(UsageError, match=r"a.pkl: a pickle can run any code .* with --trust"):
        main([str(file)])
    code = (
        "import sys; from pathlib import Path; from dataflow.commands.explain import load_message;"
        f"print(load_message(Path({str(file)!r}), True), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "{'ints': [1, 2]} False\n"


@pytest.mark.parametrize(("data", "reason"), [
    (b"c__main__\nBatch\n.", "Batch.*run this in the folder from which your program imports the class"),
    (b"cno_such_module\nBatch\n.", "no_such_module.*run this in the folder"),
    (b"\x80", "cannot be loaded"),
    (b"", "cannot be loaded"),
])  # fmt: skip
def test_a_pickle_that_cannot_be_read_is_one_line_with_what_to_do(tmp_path, data, reason):
    file = tmp_path / "a.pkl"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=reason) as error:
        main([str(file), "--trust"])
    assert "\n" not in str(error.value)


def test_a_file_that_is_missing_or_broken_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"missing.pt: No such file"):
        main([str(tmp_path / "missing.pt")])
    (tmp_path / "a.pt").write_bytes(b"no tensor")
    with pytest.raises(UsageError, match="cannot be loaded"):
        main([str(tmp_path / "a.pt")])


@pytest.fixture
def project(tmp_path):
    """Return a user's project with a package `common`, which has a class and a setting."""
    package = tmp_path / "common"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "settings.py").write_text("SIZE = 4096\n")
    (package / "batch.py").write_text(
        "class Batch:\n    def __init__(self):\n        self.tokens = [7] * 10\n"
    )
    return tmp_path


def run_in(folder, *words):
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_program_with_a_package_common_of_its_own_can_explain_a_message(project):
    text = "import dataflow; from common.batch import Batch; dataflow.explain(Batch())"
    (project / "train.py").write_text(text)
    done = run_in(project, "train.py")
    assert done.stderr == ""
    assert "tokens" in done.stdout


def test_a_pickle_of_a_class_in_a_package_common_can_be_explained(project):
    save = (
        "import pickle; from common.batch import Batch; pickle.dump(Batch(), open('a.pkl', 'wb'))"
    )
    assert run_in(project, "-c", save).returncode == 0
    done = run_in(project, "-m", "dataflow", "explain", "--trust", "a.pkl")
    assert done.stderr == ""
    assert "tokens" in done.stdout


@pytest.mark.parametrize("words", [["scripts/train.py"], ["-m", "scripts.train"]])
def test_a_profiled_program_imports_its_own_package_common(project, words):
    """Its package is not beside the script: it is installed, here as a folder of PYTHONPATH after the clone."""
    (project / "scripts").mkdir()
    (project / "scripts" / "train.py").write_text(
        "import sys; from common.settings import SIZE; print(SIZE, sys.argv[1:])"
    )
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{project}"}
    command = [sys.executable, "-m", "dataflow", "profile", *words, "--lr", "1"]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "4096 ['--lr', '1']\n", done.stderr


WORKERS = """
import numpy, ray
@ray.remote(num_cpus=0)
def make():
    from common.settings import SIZE
    return numpy.ones(SIZE * 100)
ray.init(num_cpus=1, include_dashboard=False)
print([len(ray.get(make.remote())) for _ in range(3)])
"""


@pytest.mark.runs
def test_workers_of_a_profiled_program_import_its_own_package_common(project):
    (project / "scripts").mkdir()
    (project / "scripts" / "train.py").write_text(WORKERS)
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{project}", "RAY_ADDRESS": "local"}
    command = [sys.executable, "-m", "dataflow", "profile", "scripts/train.py"]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "[409600, 409600, 409600]"
    assert "counted by the messages of make" in done.stdout  # so its worker was recorded
    assert str(project) not in done.stdout  # its lines are shown from the current folder
