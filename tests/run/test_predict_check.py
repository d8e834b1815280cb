# SPDX-License-Identifier: Apache-2.0
"""`predict --check` measures three configurations as `run` does, and says which of the predictions hold."""

import shlex
from types import SimpleNamespace

import pytest
from made_records import make_machine, make_record, make_run, write_record

from common.record import save
from dataflow.analysis.kept_checks import load_checks
from dataflow.analysis.prediction import CHECKED, Check
from dataflow.commands import keep_checks, predict, run
from dataflow.errors import UsageError
from dataflow.plan.command_line import parse_flags, words_of
from dataflow.report.outcome_tables import check_section


def record_of(configuration, run):
    runtime, transport, *flags = configuration.split()
    return make_record(transport, run, runtime=runtime, flags=parse_flags(flags))


@pytest.fixture
def check(monkeypatch, tmp_path, capsys):
    """check(*flags, error=..., status=..., code=...) -> the exit code, what is printed, and the words of `run`.

    Each measured time differs from the predicted one by a factor of `error`, alternately in both iterations.
    """
    monkeypatch.setattr(predict, "RESULTS", tmp_path)
    seen = SimpleNamespace(words=None, machines=0)

    def keep(_):
        seen.machines += 1
        machine = make_machine()
        path = tmp_path / "machines" / "new.json"
        path.parent.mkdir()
        save(path, machine)
        return path, machine

    monkeypatch.setattr(predict, "keep_measurement", keep)
    choose = predict.choose_checked

    def check(*flags, error=1.0, status="ok", code=0):
        def choose_and_keep(predictions):
            seen.predictions = choose(predictions)
            return seen.predictions

        def measure(words):
            seen.words = words
            folder = words[words.index("--output") + 1]
            for index, item in enumerate(seen.predictions):
                mean = error * item.seconds
                made = make_run([0.5 * mean, 1.5 * mean], status=status, reason="x")
                write_record(
                    tmp_path / folder / f"{index}.json",
                    record_of(item.cost.configuration, made),
                )
            return code

        monkeypatch.setattr(predict, "choose_checked", choose_and_keep)
        monkeypatch.setattr(run, "main", measure)
        exit_code = predict.main(["--check", *flags])
        return exit_code, capsys.readouterr().out, seen

    return check


@pytest.mark.parametrize(
    ("error", "held", "code"), [(1.0, 3, 0), (1.16, 3, 0), (1.19, 0, 1), (0.88, 3, 0), (0.85, 0, 1)]
)
def test_a_prediction_holds_within_15_percent_of_the_mean(check, error, held, code):
    exit_code, printed, _ = check(error=error)
    assert exit_code == code
    assert f"holds within 15 % of the measured mean for {held} of 3 configurations" in printed
    assert printed.index("predicted ms") < printed.index("measured ms")


def test_the_machine_is_measured_first_and_the_configurations_as_run_does(check, tmp_path):
    _, printed, seen = check("--iteration-bytes", "64MiB", "--iterations", "5", "--runs", "2")
    assert seen.machines == 1
    assert "new.json: 2 cores, 10 GB/s copied by 2 threads, 1 µs per page fault (5 if" in printed
    arguments, given = run.parse_arguments(seen.words)
    assert arguments.configurations == [*CHECKED]
    assert arguments.runs == 2 and arguments.output.parent == tmp_path
    assert arguments.output.name.startswith("run-")
    assert given == {"iteration_bytes": 2**26, "iterations": 5, "device": "cpu"}


def test_a_machine_that_was_measured_before_is_not_measured_again(check, tmp_path):
    path = tmp_path / "before.json"
    save(path, make_machine())
    _, printed, seen = check("--machine", str(path), "--output", str(tmp_path / "new"))
    assert seen.machines == 0 and "before.json: 2 cores" in printed
    assert str(tmp_path / "new") in seen.words


@pytest.mark.parametrize(("slowest", "is_warned"), [(1.2, False), (2.0, True)])
def test_copies_that_differ_much_are_a_warning(slowest, is_warned, tmp_path, capsys):
    machine = make_machine()
    (seconds,) = machine.warm_copies[-1].seconds
    machine.warm_copies[-1].seconds.append(slowest * seconds)
    path = tmp_path / "machine.json"
    save(path, machine)
    predict.main(["--machine", str(path)])
    printed = capsys.readouterr().out
    text = "warning: the slowest copy by all cores took 2 times as long as the fastest one"
    assert (text in printed) == is_warned


def test_a_run_that_failed_is_no_prediction_that_holds(check):
    exit_code, printed, _ = check(status="failed", code=1)
    assert exit_code == 1
    assert "not measured" in printed and "for 0 of 3 configurations" in printed


def test_an_interrupt_is_told_by_the_exit_code(check):
    exit_code, printed, _ = check(code=130)
    assert exit_code == 130 and "measured ms" not in printed


def test_a_folder_that_exists_is_rejected_before_anything_is_measured(check, tmp_path):
    with pytest.raises(UsageError, match="exists: give a new folder"):
        check("--output", str(tmp_path))


def test_a_check_is_kept_with_the_state_of_the_machine(check, monkeypatch, tmp_path):
    monkeypatch.setattr(keep_checks, "CHECKS", tmp_path / "checks")
    check("--state", "one core", error=1.25)
    (file,) = load_checks(tmp_path / "checks")
    assert (file.state, file.cores, file.copy_gbps, file.runs) == ("one core", 2, 10.0, 1)
    names = [checked.predicted.configuration for checked in file.checked]
    assert names == [*CHECKED]
    section = check_section([file])
    assert "differ by a factor of 1.25 (rms of the logarithms of 3)" in section.sentence
    assert [row[-1] for row in section.table.cells] == ["-20 %"] * 3


def test_a_failed_check_is_kept_without_a_time(check, monkeypatch, tmp_path):
    monkeypatch.setattr(keep_checks, "CHECKS", tmp_path / "checks")
    check("--state", "one core", status="failed", code=1)
    section = check_section(load_checks(tmp_path / "checks"))
    assert section.sentence == "No run of these checks counts."
    assert [row[-1] for row in section.table.cells] == ["not measured"] * 3


def test_only_a_check_is_kept():
    with pytest.raises(UsageError, match="--state: give --check, too"):
        predict.main(["--state", "one core"])


def test_without_a_time_nothing_holds():
    assert not Check(SimpleNamespace(seconds=1.0), None, None).holds


@pytest.mark.parametrize(
    "text", ["--retain-memory", "--warmup steady --iteration-bytes 1024", "--flow 'a -> b: 8MB'"]
)
def test_the_words_of_flags_give_the_same_flags(text):
    given = parse_flags(shlex.split(text))
    assert parse_flags(words_of(given)) == given
