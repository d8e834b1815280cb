# SPDX-License-Identifier: Apache-2.0
"""What `raymeter compare` runs and says."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from raymeter.commands import compare
from raymeter.commands.repeated_runs import Run
from raymeter.errors import UserError
from raymeter.report.comparison import render_markdown, render_text

from raymeter import command_line


def programs(words: list[str]) -> list[Any]:
    before, after = compare.split_words(words)
    arguments = command_line.compare_parser().parse_args(before)
    return compare.find_programs(arguments, after)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "new.py", "main/train.py", "branch/train.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return "train.py"


def test_two_programs_keep_their_own_arguments(script: str) -> None:
    before, after = programs(["--runs", "5", script, "--lr", "1", "--", "new.py", "--", "x"])
    assert before.words == ["train.py", "--lr", "1"]
    assert after.words == ["new.py", "--", "x"]


def test_settings_are_only_those_of_the_program_after_the_change(script: str) -> None:
    before, after = programs(["--set", "A=1", "--set", "B=x=y", "--", script])
    assert before.settings == {}
    assert after.settings == {"A": "1", "B": "x=y"}
    assert before.words == after.words == ["train.py"]


def test_a_program_runs_in_two_folders(script: str) -> None:
    before, after = programs(["--folders", "main", "branch", "--", script, "-v"])
    assert (before.folder, after.folder) == (Path("main"), Path("branch"))
    assert before.words == ["train.py", "-v"]


def test_modules_are_given_with_m(script: str) -> None:
    before, after = programs(["-m", "one.train", "--", "-m", "two.train", "x"])
    assert before.words == ["-m", "one.train"]
    assert after.words == ["-m", "two.train", "x"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.py"], "needs two programs"),
        (["train.py", "--", "other.py"], "other.py: no such script"),
        (["--set", "A", "--", "train.py"], "--set A: give NAME=VALUE"),
        (["--set", "A=1", "train.py", "--", "train.py"], "comes after --"),
        (["--folders", "main", "nowhere", "--", "train.py"], "nowhere: no such folder"),
        (["--folders", "main", "branch", "--", "x.py"], "main/x.py: no such script"),
        (["--folders", "main", "branch", "--"], "give it after --"),
    ],
)
def test_incomplete_commands_are_one_line(script: str, words: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        programs(words)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def make_run(step: float, routes: dict[str, float]) -> Run:
    """Return a run with one message of 10 MiB per step for each route, which takes so many seconds."""
    groups = []
    for route, seconds in routes.items():
        sender, _, reader = route.partition(" -> ")
        group = SimpleNamespace(sender=sender, readers=[reader], count=4.0, reads=4.0)
        group.bytes = 10 * 2**20
        group.seconds = lambda seconds=seconds: 4 * seconds
        groups.append(group)
    steps = SimpleNamespace(seconds=step, count=4)
    profile: Any = SimpleNamespace(groups=groups, steps=steps)
    return Run(profile)


BEFORE = [make_run(0.300 + 0.001 * n, {"driver -> A": 0.1, "A -> B": 0.05}) for n in range(3)]
AFTER = [make_run(0.200 + 0.001 * n, {"driver -> A": 0.02, "A -> C": 0.05}) for n in range(3)]


def test_each_message_has_a_row_with_its_verdict() -> None:
    lines = render_text(BEFORE, AFTER).splitlines()
    rows = {line.split("  ")[0]: line for line in lines}
    assert "100 -> 20" in rows["driver -> A"]
    assert rows["driver -> A"].split("  ")[-1].strip() == "faster"
    assert "5.00 to 5.00" in rows["driver -> A"]
    assert "10 MiB -> -" in rows["A -> B"]
    assert rows["A -> B"].endswith("gone")
    assert rows["A -> C"].endswith("new")
    assert rows["step"].endswith("faster")
    assert "301 -> 201" in rows["step"]


def read_only(runs: list[Run]) -> list[Run]:
    """Return runs whose messages are put before the steps, and read twice in each of them."""
    for run in runs:
        for group in run.profile.groups:
            group.count, group.reads = 0.0, 8.0
    return runs


def row_of(before: list[Run], after: list[Run], name: str) -> str:
    lines = render_text(before, after).splitlines()
    return next(line for line in lines if line.startswith(name))


def test_what_is_put_before_the_steps_and_read_in_them_is_not_gone() -> None:
    def sent(seconds: float) -> list[Run]:
        return [make_run(0.300 + 0.001 * n, {"driver -> A": seconds}) for n in range(3)]

    put = read_only(sent(0.02))
    row = row_of(sent(0.1), put, "driver -> A")
    assert "10 MiB  1 -> 2 reads  100 -> 20" in row
    assert row.endswith("faster")
    row = row_of(put, read_only(sent(0.02)), "driver -> A")
    assert "10 MiB  2 reads" in row
    assert row.endswith("no difference")
    assert row_of(put, AFTER, "A -> C").endswith("new")
    other = [make_run(0.3, {}), *put[1:]]
    assert row_of(put, other, "driver -> A").endswith("not in each run")


def test_a_table_that_is_too_wide_has_each_message_on_a_line_of_its_own() -> None:
    wide = render_text(BEFORE, AFTER, 200).splitlines()
    narrow = render_text(BEFORE, AFTER, 65).splitlines()
    assert max(map(len, wide)) > 65 >= max(map(len, narrow))
    assert narrow[0] == "message"
    assert narrow[2] == "driver -> A"
    assert "100 -> 20" in narrow[3]


def test_the_driver_and_compiled_methods_are_called_as_in_the_profile() -> None:
    runs = [make_run(0.3, {" -> Reward.__ray_call__": 0.1}) for _ in range(3)]
    assert render_text(runs, runs).splitlines()[1].startswith("driver -> Reward  ")


def test_equal_programs_do_not_differ() -> None:
    noisy = [make_run(seconds, {}) for seconds in (0.310, 0.290, 0.300)]
    step = next(line for line in render_text(BEFORE, noisy).splitlines() if line.startswith("step"))
    assert step.endswith("no difference")


def test_one_run_each_has_no_interval() -> None:
    text = render_text(BEFORE[:1], AFTER[:1])
    assert "no interval" in text
    step = next(line for line in text.splitlines() if line.startswith("step"))
    assert step.endswith("unknown")


def test_markdown_is_a_table() -> None:
    lines = render_markdown(BEFORE, AFTER).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert table[0].startswith("| message | bytes |")
    assert table[-1].startswith("| step |")


def test_a_failing_program_ends_the_comparison(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text("print('its last line'); raise SystemExit(3)")
    assert command_line.main(["compare", "--output", "out", script, "--", "new.py"]) == 2
    *_, end, error = capsys.readouterr().err.splitlines()
    assert end == "    its last line"
    assert error == "error: before ended with exit code 3; the end of its output is above"
    assert not Path("out").exists()


def test_ctrl_c_ends_a_comparison_in_one_line(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text("raise KeyboardInterrupt")
    assert command_line.main(["compare", "--output", "out", script, "--", "new.py"]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "raymeter: stopped"
    assert not Path("out", "round-1-1").exists()
