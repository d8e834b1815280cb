# SPDX-License-Identifier: Apache-2.0
"""What `raymeter try` tries and says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_programs import make_finding, make_loop, write_recording
from raymeter.advice import advise
from raymeter.commands import try_changes
from raymeter.commands.repeated_runs import Program, Run
from raymeter.commands.try_changes import KEEP_MEMORY, Setting, Trial, render, write_results
from raymeter.findings import Advice, Prediction
from raymeter.profile.reader import read_recording
from raymeter.simulate.measured import FILE, read_measured

from raymeter import command_line

MIB = 2**20
ZERO_COPY = {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}


def runs(*milliseconds: float, peak: int = 0) -> list[Run]:
    made = []
    for value in milliseconds:
        profile: Any = SimpleNamespace(steps=SimpleNamespace(seconds=value / 1e3))
        made.append(Run(profile, peak))
    return made


def text_of(before: list[Run], after: list[Run]) -> list[str]:
    return render([Trial(Setting("keep", KEEP_MEMORY), before, after)], Path("out"))


def test_a_gain_has_its_interval_its_price_and_the_lines_to_type() -> None:
    before = runs(164, 166, 163, peak=2_000 * MIB)
    after = runs(119, 120, 118, peak=3_000 * MIB)
    lines = text_of(before, after)
    assert " ".join(lines[:2]) == (
        "1. saves 45 ms per step (measured): 164 ms -> 119 ms (1.37 to 1.39 times as    fast), 1,000 MiB more memory"
    )
    assert "   export MALLOC_ARENA_MAX=1" in lines
    assert max(len(line) for line in lines) <= 80
    assert "Medians of 3 runs each, in turns" in " ".join(lines)


def test_an_interval_that_contains_no_difference_is_no_advice() -> None:
    lines = text_of(runs(164, 120, 140), runs(119, 150, 130))
    assert lines[0].startswith("No advice: no difference with keep")
    assert "export" not in "".join(lines)


def test_slower_is_no_advice() -> None:
    text = " ".join(text_of(runs(100, 101, 102), runs(200, 201, 202)))
    assert "No advice: the steps are slower with keep: 101 ms -> 201 ms" in text


def test_one_run_each_is_no_advice() -> None:
    text = " ".join(text_of(runs(200), runs(100)))
    assert "no interval" in text and "Give --runs 3" in text


def test_unknown_memory_is_not_said() -> None:
    text = " ".join(text_of(runs(164, 166, 163), runs(119, 120, 118)))
    assert "more memory" not in text and "less memory" not in text


def profile(faults: int, settings: dict[str, str], finding: dict[str, str]) -> Any:
    message = SimpleNamespace(bytes=100 * MIB, faults=faults)
    process = SimpleNamespace(settings=settings)
    recording = SimpleNamespace(sent=[message], received=[], processes=[process])
    found = SimpleNamespace(settings=finding, price="")
    return SimpleNamespace(program=SimpleNamespace(recording=recording), findings=[found])


@pytest.mark.parametrize(
    ("faults", "settings", "finding", "expected"),
    [
        (25_600, {}, {}, [KEEP_MEMORY]),
        (100, {}, {}, []),
        (25_600, KEEP_MEMORY, {}, []),
        (100, {}, ZERO_COPY, [ZERO_COPY]),
        (100, ZERO_COPY, ZERO_COPY, []),
        (25_600, {}, ZERO_COPY, [ZERO_COPY, KEEP_MEMORY]),
    ],
)
def test_settings_that_fit_and_are_not_set_are_tried(
    faults: int, settings: dict[str, str], finding: dict[str, str], expected: list[dict[str, str]]
) -> None:
    found = try_changes.find_settings(profile(faults, settings, finding))
    assert [setting.variables for setting in found] == expected


@pytest.mark.parametrize(
    ("settings", "price"),
    [(ZERO_COPY, try_changes.ZERO_COPY_PRICE), ({"BATCH_WAY": "numpy"}, try_changes.CLASS_PRICE)],
)
def test_the_price_of_a_setting_is_its_own_and_not_that_of_a_change_of_code(
    settings: dict[str, str], price: str
) -> None:
    made = profile(100, {}, settings)
    made.findings[0].price = "converting one message took 13 ms."
    (found,) = try_changes.find_settings(made)
    assert (found.variables, found.price) == (settings, price)


def test_how_often_the_program_runs_is_said_before() -> None:
    assert "at most 10 runs" in try_changes.announce("train.py", 3)


def test_rounds_are_interleaved_and_every_second_one_is_reversed() -> None:
    from raymeter.commands.repeated_runs import run_interleaved

    order = []

    class Fake:
        def run(self, program: Program, name: str) -> Run:
            order.append(program.label)
            return runs(1.0)[0]

    fake: Any = Fake()
    found = run_interleaved(fake, [Program("a", ["a"]), Program("b", ["b"])], 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert [len(group) for group in found] == [3, 3]


@pytest.fixture
def profile_of_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a profile with two pieces of advice, of which the first one is a setting."""
    setting, other = make_finding(settings=ZERO_COPY), make_finding(line="/made/b.py:3")
    made = [Advice(setting, Prediction(0.1, 0.08)), Advice(other, Prediction(0.08, 0.07))]
    monkeypatch.setattr("raymeter.advice.predict", lambda *_: made)
    monkeypatch.setattr("raymeter.advice.causes.find_all", lambda *_: [setting, other])
    write_recording(make_loop(), tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("milliseconds", "first", "second"),
    [
        ((60, 61, 59), "saves 40 ms per step (measured): 100 ms -> 60 ms", "60 ms -> 50 ms"),
        ((100, 101, 99), "saves 10 ms per step (predicted): 100 ms -> 90 ms", ""),
        ((150, 151, 149), "saves 10 ms per step (predicted): 100 ms -> 90 ms", ""),
        ((60,), "saves 20 ms per step (predicted): 100 ms -> 80 ms", "80 ms -> 70 ms"),
    ],
)
def test_show_has_the_measured_saving_in_the_place_of_the_prediction(
    profile_of_try: Path,
    milliseconds: tuple[float, ...],
    first: str,
    second: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = runs(*(100, 101, 99)[: len(milliseconds)])
    trial = Trial(Setting("zero copy", ZERO_COPY), before, runs(*milliseconds))
    step = advise(read_recording(profile_of_try)).steps.name
    write_results(profile_of_try, [trial], step)
    assert command_line.main(["show", str(profile_of_try)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"1. {first}" in text
    assert ("2. saves 10 ms per step (predicted): " in text) == bool(second)
    assert second in text


def test_what_was_measured_of_another_step_replaces_nothing(profile_of_try: Path) -> None:
    trial = Trial(Setting("zero copy", ZERO_COPY), runs(100, 101, 99), runs(60, 61, 59))
    write_results(profile_of_try, [trial], "another step")
    assert not advise(read_recording(profile_of_try)).advice[0].prediction.is_measured


def test_a_damaged_result_is_one_line(
    profile_of_try: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (profile_of_try / FILE).write_text('[{"step": 1}]')
    assert command_line.main(["show", str(profile_of_try)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"{FILE}: it is damaged" in line


class MadeRecorder:
    """It runs nothing: steps take 100 ms, and 50 ms with settings."""

    def __init__(self, folder: Path, *_: object) -> None:
        self.folder = folder

    def run(self, program: Program, name: str) -> Run:
        (self.folder / name).mkdir()
        made = profile(25_600, {}, ZERO_COPY)
        seconds = 0.05 if program.settings else 0.1
        made.steps = SimpleNamespace(seconds=seconds, name="the loop")
        return Run(made)


def test_try_writes_its_result_beside_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    monkeypatch.setattr(try_changes, "Recorder", MadeRecorder)
    assert command_line.main(["try", "--output", "out", "train.py"]) == 0
    found = read_measured(Path("out", "first"), "the loop")
    assert [item.settings for item in found] == [ZERO_COPY, KEEP_MEMORY]
    assert [item.verdict for item in found] == ["faster", "faster"]
    assert (found[0].before_seconds, found[0].after_seconds) == (0.1, 0.05)
