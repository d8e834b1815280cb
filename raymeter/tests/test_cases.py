# SPDX-License-Identifier: Apache-2.0
"""Check the keys of the cases, how the scoreboard reads what raymeter prints, and one real case."""

import ast
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import scoreboard
from scoreboard import CASES, SOURCE, TESTS, Key, Run, judge, parse_output, read_key, read_keys

KEYS = read_keys()

ADVICE = """15 steps of 337 ms (median); a step is a pass of the loop at by_value.py:28.
Moving data takes 240 ms of work per step of 337 ms (71 %). The largest cause: the same
content is sent again, cases/by_value.py:28: 96 ms of 337 ms.

ms/step  per step      size   sent as  message
  240.0         4  96.0 MiB  argument  driver -> Rollout.set_weights  by_value.py:28

What to change:
1. saves 96.4 ms per step (predicted): 337 ms -> 241
   ms
   cases/by_value.py:28  The same 96.0 MiB are sent again 3 times per step.
   Call `ref = ray.put(value)` once.
   Before and after: raymeter explain the-same-content-is-sent-again
2. saves 1,041 ms per step (upper limit): 1,241 ms -> 200 ms
   cases/other.py:7  64 MiB (dict): tensors in the pickle.
   Before and after: raymeter explain tensors-in-the-pickle

Recording took 0.4 % of the CPU time.
"""
SILENT = """20 steps of 120 ms (median).
Moving data takes 1.2 ms of work per step of 120 ms (1 %), and at most 0 ms of it can be saved by what
raymeter knows: not your
problem.
"""


SLEEPER = """
import signal, sys
sys.path.insert(0, sys.argv[1])
import scoreboard
signal.signal(signal.SIGTERM, scoreboard.end_by_signal)
scoreboard.run_program([sys.argv[2]], is_fixed=False)
"""


def wait_until(is_met: Callable[[], object]) -> None:
    """Wait until a condition is met; raise TimeoutError after 20 seconds."""
    end = time.monotonic() + 20
    while not is_met():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)


def known_causes() -> set[str]:
    """Return all texts in the modules of raymeter that name causes."""
    texts = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
    return texts


def make_run(text: str, step_ms: float, exit_code: int = 0) -> Run:
    return Run(exit_code, step_ms, text)


def make_failed_run(text: str) -> Run:
    return Run(1, None, text)


def by_value() -> Key:
    return read_key(CASES / "by_value.py")


def test_there_are_enough_cases_and_controls():
    controls = [key for key in KEYS if key.is_control]
    assert len(KEYS) - len(controls) >= 30
    assert len(controls) >= 6


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_key_names_its_source(key: Key):
    is_address = "#" in key.source or key.source.startswith("https://")
    assert is_address, key.source
    assert len(key.summary) > 30


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_key_names_causes_that_raymeter_knows(key: Key):
    unknown = {*key.causes, *key.harmful} - known_causes()
    assert not unknown


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_only_controls_have_no_guilty_line_and_no_fix(key: Key):
    text = key.path.read_text()
    assert bool(key.lines) != key.is_control
    assert ("FIXED" in text) != key.is_control


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_harmful_advice_is_not_the_right_one(key: Key):
    assert not set(key.harmful) & set(key.causes)


def test_advice_is_read_from_wrapped_lines():
    printed = parse_output(ADVICE)
    assert printed.names_first("the same content is sent again")
    assert not printed.names_first("tensors in the pickle")
    assert printed.advises("tensors in the pickle")
    assert [advice.saved_ms for advice in printed.advice] == [96.4, 1041.0]
    assert (printed.advice[0].file, printed.advice[0].line) == ("by_value.py", 28)
    assert not printed.is_silent


def test_silence_is_read_from_wrapped_lines():
    printed = parse_output(SILENT)
    assert printed.is_silent
    assert not printed.advice


def test_silence_is_also_that_no_change_is_known():
    text = "Moving data is 40 % of a step. Most of it: 64 MiB, Reader -> driver, line\na.py:3: 9 ms of 20. "
    assert parse_output(
        f"{text}raymeter\nknows no change that would make this step 5 % shorter."
    ).is_silent
    assert not parse_output(f"{text}The largest cause: lists of numbers, line a.py:3").is_silent


def test_an_error_is_not_silence():
    assert not parse_output("error: the program has not called ray.init").is_silent


@pytest.mark.parametrize(
    ("fixed_ms", "is_right"), [(240.0, True), (280.0, False), (190.0, False), (340.0, False)]
)
def test_saving_is_compared_with_the_true_one(fixed_ms: float, is_right: bool):
    key = by_value()
    text = ADVICE.replace("by_value.py:28", f"by_value.py:{key.lines[0]}")
    score = judge(key, [make_run("", 337)], [make_run("", fixed_ms)], [make_run(text, 340)])
    assert score.is_cause_first
    assert score.is_line_right
    assert score.is_saving_right == is_right


def test_another_exit_code_and_harmful_advice_are_counted():
    key = read_key(CASES / "control_shared_mask.py")
    score = judge(key, [make_run("", 100)], [make_run("", 100)], [make_run(ADVICE, 110, 2)])
    assert not score.is_exit_code_equal
    assert not score.is_silent
    assert score.harmful == ["the same content is sent again"]
    assert score.cost == pytest.approx(0.1)


def test_a_run_is_repeated_if_ray_did_not_start(monkeypatch):
    results = [
        make_failed_run("Exception: The current node timed out during startup."),
        make_run("STEP_MS 5.0 MEAN_MS 5.0 STEPS 3", 5.0),
    ]
    monkeypatch.setattr(scoreboard, "run_once", lambda words, is_fixed: results.pop(0))
    assert scoreboard.run_program(["case.py"], is_fixed=False).step_ms == 5.0


def test_a_program_that_fails_is_run_once(monkeypatch):
    results = [make_failed_run("ZeroDivisionError")]
    monkeypatch.setattr(scoreboard, "run_once", lambda words, is_fixed: results.pop(0))
    assert scoreboard.run_program(["case.py"], is_fixed=False).exit_code == 1


def test_a_program_ends_with_the_scoreboard(tmp_path):
    program = tmp_path / "sleeper.py"
    program.write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    )
    words = [sys.executable, "-c", SLEEPER, str(TESTS), str(program)]
    board = subprocess.Popen(words)
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and pid.read_text())
    board.terminate()
    assert board.wait(20) == 128 + signal.SIGTERM
    wait_until(lambda: not Path(f"/proc/{pid.read_text()}").exists())


def test_unknown_case_is_named():
    with pytest.raises(SystemExit, match="no_such_case"):
        scoreboard.read_keys(["no_such_case"])


@pytest.mark.runs
def test_raymeter_names_an_argument_by_value_first(monkeypatch):
    monkeypatch.setenv("STEPS", "8")
    score = scoreboard.run_case(by_value(), runs=1)
    assert not score.problems
    assert score.exit_codes == [0, 0]
    assert score.is_cause_first, score.said
    assert score.is_line_right, score.said
