# SPDX-License-Identifier: Apache-2.0
"""Check what the replay of a profile measures, and when it says that it holds."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from conftest import ROOT

from dataflow.commands import replay, run
from dataflow.errors import UsageError


@pytest.fixture
def make_profile(tmp_path):
    """make_profile(causes, settings) writes the files of a profile, and returns its folder."""

    def make(causes=(), settings=None):
        summary = {
            "moving": {"work_seconds": 0.2},
            "advice": [{"cause": cause} for cause in causes],
            "settings": settings or {},
        }
        (tmp_path / replay.SUMMARY).write_text(json.dumps(summary))
        (tmp_path / replay.FLOW).write_text("")
        return tmp_path

    return make


@pytest.fixture
def measured(monkeypatch):
    """The words with which the suite was started. Each configuration takes `measured.seconds`."""
    seen = SimpleNamespace(words=[], seconds=0.2, runs=1)

    def measure(words):
        seen.words = words
        return 0

    def results_of(_):
        result = SimpleNamespace(label=seen.words[0], typical_seconds=seen.seconds)
        result.run_seconds = [seen.seconds] * seen.runs
        return [result]

    monkeypatch.setattr(replay.run, "main", measure)
    monkeypatch.setattr(replay, "load_all", lambda _: None)
    monkeypatch.setattr(replay, "group_results", results_of)
    return seen


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.24, "The replay holds."), (0.26, "does not hold")]
)
def test_a_replay_holds_within_a_quarter_of_the_time_in_the_program(
    make_profile, measured, capsys, seconds, text
):
    measured.seconds = seconds
    assert replay.main([str(make_profile())]) == 0
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("causes", "settings", "first"),
    [
        ([], {}, "store refs"),
        (["tensors in the pickle", replay.FORWARDED], {}, "store driver-queue"),
        ([], {"MALLOC_TRIM_THRESHOLD_": "1"}, "store refs --retain-memory"),
    ],
)
def test_the_first_configuration_is_most_like_the_program(
    make_profile, measured, causes, settings, first
):
    replay.main([str(make_profile(causes, settings))])
    arguments, _ = run.parse_arguments(measured.words)
    configurations = arguments.configurations
    assert configurations[0] == first
    assert len(configurations) == len(set(configurations))


def test_the_cause_has_the_name_that_raymeter_gives_it():
    code = "from raymeter.causes import forwarded; print(forwarded.CAUSE)"
    source = ROOT / "raymeter" / "src"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, check=True, text=True
    )
    assert done.stdout == f"{replay.FORWARDED}\n"


@pytest.mark.parametrize("missing", [replay.FLOW, replay.SUMMARY])
def test_a_folder_without_a_profile_is_named(make_profile, missing):
    folder = make_profile()
    (folder / missing).unlink()
    with pytest.raises(UsageError, match=missing):
        replay.main([str(folder)])


def test_a_summary_that_is_none_is_named(make_profile):
    folder = make_profile()
    (folder / replay.SUMMARY).write_text("{}")
    with pytest.raises(UsageError, match="no summary of raymeter"):
        replay.main([str(folder)])


def test_without_a_run_that_counts_nothing_is_said_of_the_times(make_profile, measured, capsys):
    measured.seconds, measured.runs = float("nan"), 0
    replay.main([str(make_profile())])
    text = capsys.readouterr().out
    assert "Whether the replay holds is unknown: no run of store refs counts" in text
    assert "nan" not in text


def test_flags_that_the_suite_advises_are_passed_on(make_profile, measured):
    replay.main([str(make_profile()), "--warmup", "1", "--allow-disturbed"])
    _, given = run.parse_arguments(measured.words)
    assert (given["warmup"], given["allow_disturbed"]) == (1, True)


def test_a_second_replay_has_a_folder_of_its_own(make_profile, measured):
    folder = make_profile()
    for name in ("replay", "replay-2", "replay-3"):
        replay.main([str(folder)])
        output = folder / name
        assert measured.words[-2:] == ["--output", str(output)]
        output.mkdir()
