"""What `raymeter try` tries and says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from raymeter.commands import try_changes
from raymeter.commands.repeated_runs import Run
from raymeter.commands.try_changes import KEEP_MEMORY, Setting, Trial, render

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


def test_how_often_the_program_runs_is_said_before() -> None:
    assert "at most 10 runs" in try_changes.announce("train.py", 3)


def test_rounds_are_interleaved_and_every_second_one_is_reversed() -> None:
    from raymeter.commands.repeated_runs import Program, run_interleaved

    order = []

    class Fake:
        def run(self, program: Program, name: str) -> Run:
            order.append(program.label)
            return runs(1.0)[0]

    fake: Any = Fake()
    found = run_interleaved(fake, [Program("a", ["a"]), Program("b", ["b"])], 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert [len(group) for group in found] == [3, 3]
