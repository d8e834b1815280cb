# SPDX-License-Identifier: Apache-2.0
"""Test what the page of raymeter says about the programs of others, and how their records are made."""

import json
import subprocess
import sys

import pytest
from made_records import rows_of

from examples.profiled import measure, publish, steps

BEFORE = [1.00, 1.02, 0.98, 1.01, 0.99]


def make_program(saves, predicted=0.4, advised="tensors"):
    """Return the record of a program whose change saves these seconds of about one."""
    change = {"name": "a", "text": "arrays", "cause": "tensors"}
    noise = [0.001, -0.001, 0.002, -0.002, 0.0]
    after = [seconds - saves + error for seconds, error in zip(BEFORE, noise, strict=True)]
    advice = [{"cause": advised, "line": "examples/program.py:7", "saved_seconds": predicted}]
    return {
        "program": "program",
        "title": "A program",
        "remark": "",
        "packages": {"ray": "2.60.0"},
        "printed": "Moving data is 50 % of a step.\n",
        "steps": 10,
        "step": {"seconds": 1.0, "line": "examples/program.py:5"},
        "moving": {"saved_seconds": 0.5, "is_upper_limit": False},
        "is_no_problem": False,
        "advice": advice,
        "changes": [{"change": change, "before": BEFORE, "after": after}],
    }


def verdict_of(program):
    (row,) = rows_of(publish.describe_programs([program]))
    return row["verdict"]


@pytest.mark.parametrize(
    ("saves", "predicted", "verdict"),
    [
        (0.40, 0.40, "came true"),
        (0.40, 0.30, "came true"),
        (0.40, 0.80, "faster, by less than predicted"),
        (0.40, 0.10, "faster, by more than predicted"),
        (0.00, 0.40, "cannot be told apart"),
        (-0.3, 0.40, "wrong: it is slower"),
    ],
)
def test_a_prediction_is_judged_by_what_was_measured(saves, predicted, verdict):
    assert verdict_of(make_program(saves, predicted)) == verdict


def test_two_pairs_are_too_few_for_a_verdict():
    program = make_program(0.4)
    (change,) = program["changes"]
    change["before"] = change["before"][:2]
    change["after"] = change["after"][:2]
    (row,) = rows_of(publish.describe_programs([program]))
    assert row["verdict"] == "2 pairs: no verdict"
    assert row["saves, ms (95 %)"] == "400"


def test_silence_is_judged_too():
    unknown = "another cause"
    helped = make_program(0.4, advised=unknown)
    assert verdict_of(helped) == "not said, and it would have helped"
    assert verdict_of(make_program(-0.3, advised=unknown)) == "rightly not said"
    silent = make_program(0.4) | {"is_no_problem": True}
    assert verdict_of(silent) == "not said, and it would have helped"


def test_a_limit_is_no_prediction_that_fails_by_being_large():
    program = make_program(0.4, predicted=0.8)
    program["advice"][0]["kind"] = "upper limit"
    (row,) = rows_of(publish.describe_programs([program]))
    assert row["predicted to save, ms"] == "up to 800"
    assert row["verdict"] == "faster, and below the limit"
    program["advice"][0]["saved_seconds"] = 0.1
    assert verdict_of(program) == "wrong limit: it saves more"


@pytest.mark.parametrize(
    ("saves", "verdict"),
    [
        (0.4, "faster, for `raymeter try` to find"),
        (-0.3, "slower, for `raymeter try` to find"),
        (0.0, "cannot be told apart"),
    ],
)
def test_a_change_that_only_raymeter_try_advises_is_said_to_be_so(saves, verdict):
    program = make_program(saves, advised="another cause")
    program["changes"][0]["change"]["is_tried"] = True
    assert verdict_of(program) == verdict


@pytest.mark.parametrize(
    ("advised", "verdict"),
    [
        ("tensors", "varied too much to be ranked"),
        ("another cause", "not said, and varied too much to be ranked"),
    ],
)
def test_a_difference_by_chance_is_no_verdict_though_the_interval_leaves_zero_out(advised, verdict):
    program = make_program(0.4, advised=advised)
    (change,) = program["changes"]
    change["before"] = [1.0] * 5
    change["after"] = [0.80, 0.90, 0.95, 0.97, 0.85]
    (row,) = rows_of(publish.describe_programs([program]))
    assert row["saves, ms (95 %)"] == "108 (16 to 192)"
    assert row["verdict"] == verdict


def test_a_line_has_the_step_the_share_of_data_the_cause_and_the_savings():
    (row,) = rows_of(publish.describe_programs([make_program(0.4)]))
    assert row["ms per step"] == "1,000"
    assert row["moving data"] == "50%"
    assert row["what raymeter says first"] == "tensors, `program.py:7`"
    assert row["predicted to save, ms"] == "400"
    assert row["saves, ms (95 %)"].startswith("400 (")


def test_advice_about_one_cause_counts_together():
    program = make_program(0.4)
    program["advice"] = 2 * program["advice"]
    assert publish.predicted_seconds(program, "tensors") == 0.8
    assert publish.predicted_seconds(program, "lists") is None


def test_a_prediction_for_the_whole_program_is_divided_by_its_steps():
    program = make_program(0.4, predicted=4.0)
    program["step"] = {"seconds": 10.0, "line": ""}
    assert publish.predicted_seconds(program, "tensors") == 0.4
    assert verdict_of(program) == "came true"


def test_the_programs_are_modules_and_their_changes_set_variables():
    for program in measure.read_programs():
        assert (measure.PROGRAMS.parent / f"{program.name}.py").exists()
        for change in program.changes:
            assert change.settings


def test_a_program_that_fails_keeps_its_record_and_the_others_go_on(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(measure, "RECORDS", tmp_path)
    first, second, *_ = measure.read_programs()
    record = tmp_path / "programs" / f"{first.name}.json"
    record.parent.mkdir()
    record.write_text('{"program": "as it was"}')
    measured = []

    def describe_profile(program):
        if program.name == first.name:
            raise measure.Failed("it ended with exit code 1")
        measured.append(program.name)
        return {"printed": ""}

    monkeypatch.setattr(measure, "describe_profile", describe_profile)
    monkeypatch.setattr(measure, "version", lambda name: "1.0")
    with pytest.raises(SystemExit, match=f"failed: {first.name}"):
        measure.main([first.name, second.name, "--only", "profile"])
    assert measured == [second.name]
    assert json.loads(record.read_text()) == {"program": "as it was"}
    written = json.loads((tmp_path / "programs" / f"{second.name}.json").read_text())
    assert written["origins"]["profile"]["day"]
    assert "failed: it ended with exit code 1" in capsys.readouterr().out


def test_a_program_that_takes_too_long_has_failed(monkeypatch):
    def run(*_, **__):
        raise subprocess.TimeoutExpired("python", measure.MAX_SECONDS)

    monkeypatch.setattr(measure.subprocess, "run", run)
    with pytest.raises(measure.Failed, match=f"has taken {measure.MAX_SECONDS} s"):
        measure.run(["-m", "examples.program"], {})


def test_the_step_without_the_first_pass_is_printed_and_read(capsys, monkeypatch):
    times = iter([0.0, 9.0, 10.0, 10.5, 20.0, 20.7])
    monkeypatch.setattr(steps.time, "perf_counter", lambda: next(times))
    assert list(steps.timed_steps(3)) == [0, 1, 2]
    output = capsys.readouterr().out
    assert steps.read_step(f"(Worker pid=7) {output}") == pytest.approx(0.6)
    assert steps.read_step("no times") is None


def test_no_folder_of_this_machine_is_recorded(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(
        '{"a": "(/home/me/venv/lib/python3/site-packages/verl/p.py:3", '
        f'"b": "{measure.ROOT}/examples/p.py:7", "c": "{sys.base_prefix}/lib/threading.py:9"}}'
    )
    assert json.loads(measure.read_text(path)) == {
        "a": "(verl/p.py:3",
        "b": "examples/p.py:7",
        "c": "lib/threading.py:9",
    }


def make_cost(factor, goal=0.02, pairs=5):
    """Return the record of a program that takes so many times the CPU time with raymeter."""
    noise = [0.001, -0.001, 0.002, -0.002, 0.0][:pairs]
    return {
        "what": "a program",
        "unit": "calls",
        "per_second": 9_000.0,
        "goal": goal,
        "plain_ms": [10.0 for _ in noise],
        "recorded_ms": [10.0 * (factor + error) for error in noise],
        "once_plain_seconds": [4.0],
        "once_recorded_seconds": [6.0],
        "own_shares": [0.011, 0.013],
        "said": "0.4 %",
    }


def make_costs(*programs):
    return {
        "cores": 2,
        "first_seconds": 12.0,
        "window_seconds": 2.0,
        "runs": 1,
        "wrapper_seconds": 2e-7,
        "programs": programs,
    }


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (1.01, "at most 2%: reached"),
        (1.019, "at most 2%: not shown"),
        (1.05, "at most 2%: missed"),
    ],
)
def test_the_cost_of_recording_is_judged_by_its_interval(factor, verdict):
    (row,) = rows_of(publish.describe_costs(make_costs(make_cost(factor))))
    assert row["goal"] == verdict
    assert row["by its own clocks"] == "1.2%"
    assert row["start and end, s"] == "4.0 -> 6.0"


def test_two_pairs_say_nothing_about_the_goal():
    (row,) = rows_of(publish.describe_costs(make_costs(make_cost(1.0, pairs=2))))
    assert row["goal"] == "at most 2%: not known"


ORIGIN = {
    "day": "2026-01-01", "git_commit": "a" * 40, "git_dirty": False, "logical_cpus": 2, "cpu_model": "A CPU",
    "boot": "0123456789ab",
}  # fmt: skip
UNKNOWN = "name no day, commit or machine, so the age of their code is not known."


def test_a_part_of_the_page_says_where_its_records_come_from_or_that_they_do_not():
    known = publish.describe_origins([ORIGIN, ORIGIN])
    place = "2 cores of A CPU, boot 0123456789ab"
    assert known == f"Measured on 2026-01-01, {place}, commit aaaaaaaaaa."
    assert publish.describe_origins([None]) == f"The records {UNKNOWN}"
    assert publish.describe_origins([ORIGIN, None]) == f"{known} Some records {UNKNOWN}"
    (section,) = [publish.describe_costs(make_costs(make_cost(1.0)))]
    assert section.notes == [f"The records {UNKNOWN}"]
    program = make_program(0.4) | {"origins": {"profile": ORIGIN, "changes": ORIGIN}}
    assert publish.describe_programs([program]).notes[-1] == known


def test_the_quoted_output_says_where_it_comes_from(tmp_path):
    path = tmp_path / publish.RECORDS / "example.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"printed": "Moving data is 1 %.\n", "origin": ORIGIN}))
    first, *_ = publish.make_sections(tmp_path)
    assert first.name == "raymeter-example"
    assert first.sentence == "```\nMoving data is 1 %.\n```"
    assert first.notes == [publish.describe_origins([ORIGIN])]
