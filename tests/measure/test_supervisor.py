"""Test what happens before and around a run: rejected flags, skipped configurations, and exit codes."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from conftest import KILOBYTES, ROOT, run_words
from made_records import make_run

from dataflow.__main__ import main
from dataflow.catalogue.catalogue import RUNTIMES
from dataflow.commands import run
from dataflow.errors import INTERRUPTS, RecordError, RunFailed, UsageError, run_main
from dataflow.measure import supervisor
from dataflow.measure.batch import make_items, new_records, plan_configuration
from dataflow.plan import validate
from dataflow.records import files


@pytest.fixture
def call(no_gpu, capsys, monkeypatch):
    """call(runtime, *flags) -> exit code, stdout and stderr of a script that must not measure anything."""

    monkeypatch.setattr(supervisor, "measure_run", lambda *_: pytest.fail("a run was measured"))
    handlers = {number: signal.getsignal(number) for number in INTERRUPTS}

    def run(runtime, *flags):
        with pytest.raises(SystemExit) as exited:
            run_main(main, run_words(runtime, *flags)[2:])
        output = capsys.readouterr()
        return exited.value.code, output.out, output.err

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("configuration", ["graph nccl", "torch nccl-one-gpu", "rdt cuda-ipc"])
def test_skipped_configuration_is_an_error_and_is_recorded_if_a_record_is_named(call, tmp_path, configuration):
    (runtime, transport), path = configuration.split(), tmp_path / "record.json"
    code, stdout, stderr = call(runtime, "--transport", transport, *KILOBYTES, "--output", str(path), "--timeout", "7")
    record = files.load(path)
    assert (code, stdout, stderr) == (2, "", f"error: {record.runs[0].reason}\n")
    assert (record.runs[0].status, record.configuration.transport) == ("skipped", transport)
    assert (record.arguments["timeout"], record.workload.sizes["batch_size"]) == (7, 4)
    assert record.environments["0"]["python"]
    assert str(tmp_path) not in path.read_text()


def test_file_that_exists_or_cannot_be_written_is_rejected_before_anything_is_measured(call, tmp_path):
    (tmp_path / "file").write_text("mine")
    for path, reason in ((tmp_path / "file", "exists"), ("/proc/nowhere/file", "cannot write")):
        code, stdout, stderr = call("torch", *KILOBYTES, "--output", str(path))
        assert (code, stdout, stderr.count("\n")) == (2, "", 1)
        assert reason in stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_second_measurement_on_the_machine_waits_for_the_first(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("DATA_FLOW_LOCK", str(tmp_path))  # other tests measure too
    ended = threading.Event()

    def measure():
        with supervisor.only_measurement():
            ended.set()

    with supervisor.only_measurement():
        second = threading.Thread(target=measure)
        second.start()
        assert not ended.wait(0.3)
    assert ended.wait(10)
    assert capsys.readouterr().out == "waiting until another measurement of this suite on this machine has ended\n"


def test_an_interrupt_while_it_waits_leaves_no_record(monkeypatch, tmp_path):
    item = make_items([plan_configuration("torch memcpy", {})[0]], tmp_path)[0]

    @contextmanager
    def interrupted():
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(supervisor, "only_measurement", interrupted)
    with pytest.raises(KeyboardInterrupt), new_records([item]):
        assert item.path.exists()
        supervisor.measure_all([[item]])
    assert not item.path.exists()


def test_runs_that_another_call_finishes_while_this_one_waits_are_kept(monkeypatch, tmp_path):
    """--continue reads the records when the other call can write them no more."""
    items = [make_items([plan_configuration("torch memcpy", {})[0]], tmp_path)[0] for _ in range(2)]
    other, own = items
    files.create(other.path, other.record)
    own.load_finished_runs()

    @contextmanager
    def finish_first():
        other.record.runs.append(make_run([1.0]))
        other.save()
        yield

    def measure_run(item, order):
        item.record.runs.append(make_run([2.0], order=order))
        item.save()
        return 0

    monkeypatch.setattr(supervisor, "only_measurement", finish_first)
    monkeypatch.setattr(supervisor, "measure_run", measure_run)
    assert supervisor.measure_all([[own], [own]]) == [0]
    assert [run.seconds[0] for run in files.load(own.path).runs] == [1.0, 2.0]


@pytest.mark.parametrize(("error", "reason"), [
    (KeyboardInterrupt(), "interrupted after 0 timed iterations"),
    (RunFailed("policy died"), "policy died"),
    (ValueError("a defect"), "ValueError: a defect"),
])  # fmt: skip
def test_the_reason_of_a_run_is_what_ended_it(monkeypatch, tmp_path, error, reason):
    item = make_items([plan_configuration("torch memcpy", {})[0]], tmp_path)[0]
    monkeypatch.setattr(supervisor.Monitor, "follow_driver", Mock(side_effect=error))
    with suppress(ValueError):
        supervisor.measure_run(item, 0)
    assert files.load(item.path).runs[0].reason == reason


@pytest.mark.parametrize(("status", "reason", "expected"), [
    ("ok", None, "processes cannot be ended"), ("failed", "policy died", "policy died; processes cannot be ended"),
])  # fmt: skip
def test_processes_that_survive_fail_a_run_that_keeps_its_first_reason(monkeypatch, tmp_path, status, reason, expected):
    def follow_driver(monitor, run_folder):
        monitor.record.runs[-1].status, monitor.record.runs[-1].reason = status, reason
        raise RunFailed("processes cannot be ended")

    monkeypatch.setattr(supervisor.Monitor, "follow_driver", follow_driver)
    item = make_items([plan_configuration("torch memcpy", {})[0]], tmp_path)[0]
    assert supervisor.measure_run(item, 0) == 1
    assert files.load(item.path).runs[0].reason == expected


@pytest.mark.parametrize("runtime", ["store", "torch"])
def test_shared_memory_that_cannot_be_written_is_one_line_and_leaves_no_record(call, monkeypatch, tmp_path, runtime):
    monkeypatch.setattr(validate.os, "access", lambda path, mode: str(path) != "/dev/shm")
    code, stdout, stderr = call(runtime, *KILOBYTES, "--output", str(tmp_path / "record.json"))
    assert (code, stdout, stderr.count("\n")) == (2, "", 1)
    assert stderr.startswith("error: /dev/shm is missing or cannot be written")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_at_the_end_of_a_run_loses_no_time_and_stops_no_other_run(monkeypatch, tmp_path):
    """The record of the first run cannot be replaced. Its times are in a new file, and the second run is measured."""
    items = make_items([plan_configuration(name, {})[0] for name in ("torch memcpy", "torch mapped")], tmp_path)
    replace = files.replace

    def follow_driver(monitor, run_folder):
        monitor.record.runs[-1] = make_run([1.0])
        if monitor.plan.transport.name == "memcpy":
            monkeypatch.setattr(files, "replace", fail_at_first_path)

    def fail_at_first_path(path, content):
        if path == items[0].path:
            raise RecordError(f"cannot write {path} (No space left on device)")
        replace(path, content)

    monkeypatch.setattr(supervisor.Monitor, "follow_driver", follow_driver)
    with new_records(items):
        assert supervisor.measure_all([[item] for item in items]) == [1, 0]
    assert not items[0].path.exists() and items[1].saved_path == items[1].path
    assert [files.load(item.saved_path).runs[0].seconds for item in items] == [[1.0]] * 2


@pytest.mark.parametrize("redirection", ["| head -1", ">/dev/full", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_or_full_change_no_exit_code(redirection):
    code = "import dataflow.errors as e; e.run_main(lambda: [print('x' * 10**5, flush=True) for _ in range(9)] and 0)"
    command = f'"{sys.executable}" -c "{code}" {redirection}; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0"
    warning = "warning: standard output cannot be written (No space left on device)\n"
    assert done.stderr == (warning if "full" in redirection else "")


@pytest.mark.parametrize("number", INTERRUPTS)
def test_signals_interrupt_a_program_as_ctrl_c_does_unless_they_are_ignored(number):
    function = f"lambda: os.kill(os.getpid(), {number:d}) or time.sleep(0.1) or 0"
    command = [sys.executable, "-c", f"import os, time, dataflow.errors as e; e.run_main({function})"]
    for action, expected in ((signal.SIG_DFL, 130), (signal.SIG_IGN, 130 if number == signal.SIGINT else 0)):
        set_action = partial(signal.signal, number, action)
        assert subprocess.run(command, cwd=ROOT, preexec_fn=set_action, timeout=60).returncode == expected


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_rejection_is_one_line_and_imports_neither_ray_nor_torch(runtime, tmp_path):
    for name in ("ray", "torch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('{name} was imported')")
        (tmp_path / name / "version.py").write_text("cuda = None")
    command = [sys.executable, *run_words(runtime, "--device", "cuda", *KILOBYTES)]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: --device cuda")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("--runs 0: give 1 or more"), 2, "error: --runs 0: give 1 or more\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
    ],
)
def test_exit_codes_and_messages(capfd, error, code, message):
    def fail():
        raise error

    with pytest.raises(SystemExit) as exited:
        run_main(fail)
    assert exited.value.code == code
    assert capfd.readouterr().err.startswith(message)


def test_letters_that_the_terminal_lacks_are_replaced():
    code = "from dataflow.errors import run_main\nrun_main(lambda: print('12 µs') or 0)"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "12 ?s\n", "")


def test_a_run_records_the_size_of_its_object_store(no_gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(supervisor, "RunFolder", lambda: nullcontext(SimpleNamespace(folder=tmp_path, shared=tmp_path)))
    monkeypatch.setattr(supervisor.Monitor, "follow_driver", lambda *_: None)
    (item,) = make_items(plan_configuration("store refs --object-store-bytes 3GB", {}), tmp_path)
    supervisor.measure_run(item, 0)
    assert files.load(item.path).runs[0].store_bytes == 3 * 10**9


def test_one_configuration_shows_the_time_of_a_disturbed_run_and_is_measured_once(monkeypatch, tmp_path, capsys):
    def measure_run(item, order):
        item.record.runs.append(make_run([0.5], other_cores=1.5))
        return 0

    monkeypatch.setattr(supervisor, "measure_run", measure_run)
    assert run.main(["torch memcpy", *KILOBYTES, "--output", str(tmp_path / "record.json")]) == 0
    output = capsys.readouterr().out
    assert output.count("Execution time: ") == 1 and "500" in output
    assert "warning: other programs used 1.5 cores during the run" in output
