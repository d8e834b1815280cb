"""What a user meets before anything is started: refusals, waived rows, and the files that they leave or do not."""

import json
import os
import signal
import subprocess
import sys

import pytest
from conftest import KILOBYTES, ROOT, SCRIPTS

from common.errors import UsageError
from common.record import files
from common.record.schema import Run
from common.run import supervisor


@pytest.fixture
def refused(no_gpu, capsys, monkeypatch):
    """refused(runtime, *flags) -> the one line that says why; it fails where a worker would start."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(supervisor, "add_run", lambda *_: pytest.fail("the script went on to start its worker"))

    def run(runtime, *flags):
        with pytest.raises(SystemExit) as exited:
            supervisor.main(str(SCRIPTS[runtime]), "", flags)
        said = capsys.readouterr()
        assert (exited.value.code, said.out, said.err.count("\n")) == (2, "", 1)
        assert said.err.startswith("error: ")
        return said.err.removeprefix("error: ").rstrip("\n")

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("runtime", "transport"),
    [("graph", "nccl"), ("torch", "nccl-one-gpu"), ("rdt", "nccl"), ("rdt", "cuda-ipc"), ("rdt", "nixl")],
)
def test_a_waived_row_is_refused_and_recorded(refused, monkeypatch, tmp_path, runtime, transport):
    monkeypatch.setattr("common.runtime.gpus.importlib.util.find_spec", lambda name: None)
    output = tmp_path / "record.json"
    reason = refused(runtime, "--transport", transport, "--timeout", "7", *KILOBYTES, "--output", str(output))
    record = files.load(output)
    (run,) = record.runs
    assert (run.status, run.reason, run.seconds, run.first_seconds) == ("waived", reason, [], None)
    assert (run.ceiling_before_seconds, run.ceiling_after_seconds, run.processes) == ([], [], {})
    assert (record.row.transport, record.row.sizes["batch_size"], record.arguments["timeout"]) == (transport, 4, 7)
    assert record.environments["0"]["python"]
    assert str(tmp_path) not in output.read_text()


def test_a_record_that_exists_is_not_overwritten(refused, tmp_path):
    (tmp_path / "record.json").write_text("mine")
    for flags in (KILOBYTES, ("--transport", "nccl", "--device", "cpu")):
        words = refused("graph", *flags, "--output", str(tmp_path / "record.json"))
        assert "--output another name" in words
    assert (tmp_path / "record.json").read_text() == "mine"


def test_a_trace_that_exists_is_not_overwritten_and_no_record_is_left(refused, tmp_path):
    (tmp_path / "trace.json").write_text("mine")
    flags = ("--trace", str(tmp_path / "trace.json"), "--output", str(tmp_path / "record.json"))
    assert "--trace another name" in refused("store", *KILOBYTES, *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
    assert (tmp_path / "trace.json").read_text() == "mine"


@pytest.mark.parametrize("flag", ["--output", "--trace"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(refused, tmp_path, flag):
    other = {"--output": "--trace", "--trace": "--output"}[flag]
    flags = (flag, "/proc/nowhere/file.json", other, str(tmp_path / "file.json"))
    assert "cannot write /proc/nowhere" in refused("store", *KILOBYTES, *flags)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("runtime", SCRIPTS)
def test_a_refusal_in_a_process_of_its_own_is_one_line_and_imports_neither_ray_nor_torch(runtime, tmp_path):
    """As a user meets it; nothing lies in the way where Ray or torch cannot even be imported."""
    for name in ("ray", "torch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('{name} was imported')")
        (tmp_path / name / "version.py").write_text("cuda = None")
    output = tmp_path / "record.json"
    command = [sys.executable, str(SCRIPTS[runtime]), "--device", "cuda", *KILOBYTES, "--output", str(output)]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: --device cuda")
    assert not output.exists()


def test_a_supervisor_has_neither_ray_nor_torch_nor_numpy_when_it_has_settled_what_to_do():
    program = """
import json, sys
from common.plan.command_line import parse
from common.run import supervisor
supervisor.settle("graph", parse("", "graph", ["--batch-size", "4"]))
print(json.dumps([name for name in ("ray", "torch", "numpy", "scipy", "matplotlib") if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_an_interrupted_sweep_goes_on_with_the_points_that_are_left(make_plan, monkeypatch, tmp_path):
    plan = make_plan("torch", "--transport", "memcpy", "--sweep", "payload=8KiB,16KiB,32KiB")
    record, settle = plan.record(), supervisor.settle

    def settled(runtime, options):
        if options.payload == 32 * 1024:
            raise UsageError("too little memory")
        return settle(runtime, options)

    def measured(point, record, *_):
        record.runs.append(Run(started_at="", at=point.options.at, edges=point.edges, status="ok"))
        return 0

    monkeypatch.setattr(supervisor, "settle", settled)
    monkeypatch.setattr(supervisor, "add_run", measured)
    monkeypatch.setattr(supervisor, "_print_point", lambda _: None)
    record.runs.append(Run(started_at="", at={"payload": 8 * 1024}, status="ok"))
    assert supervisor.add_runs(plan, record, tmp_path / "x.json") == 0
    assert [(run.at["payload"], run.status) for run in record.runs] == [
        (8 * 1024, "ok"), (16 * 1024, "ok"), (32 * 1024, "waived"),
    ]  # fmt: skip
    assert sum(edge.bytes for edge in record.runs[-1].edges) == pytest.approx(32 * 1024, rel=0.01)
    assert supervisor.add_runs(plan, record, tmp_path / "x.json") == 0
    assert len(record.runs) == 6
