# SPDX-License-Identifier: Apache-2.0
"""An error of the recorder ends recording, and the profile says so; the program goes on."""

import json

import pytest
from raymeter.inside import calls, identity, recorder
from raymeter.profile.lost import find_errors
from raymeter.profile.reader import read_recording
from raymeter.report import memory


class Rows(list):
    """A list whose items are asked by name, and not by slices."""

    def __getitem__(self, name):
        return list.__getitem__(self, {"first": 0, "second": 1}[name])

    def __iter__(self):
        raise TypeError("ask for rows by name")


class Cells(tuple):
    __getitem__ = __iter__ = Rows.__iter__


class Table(dict):
    values = Rows.__iter__


@pytest.fixture
def made_recorder(tmp_path, monkeypatch):
    made = recorder.Recorder(tmp_path, 1, [])
    monkeypatch.setattr(calls, "recorder", made)
    yield made
    made.close()


def read_events(folder) -> list[dict]:
    [path] = folder.glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_type_of_an_error_is_written_at_once_and_at_the_end_and_no_value(
    made_recorder, tmp_path, capsys
):
    @calls.ending_recording
    def record():
        raise KeyError("a secret")

    assert record() is None
    assert calls.recorder is False
    assert read_events(tmp_path)[-1]["error"] == "KeyError"
    made_recorder.end()
    [*_, last] = read_events(tmp_path)
    assert (last["error"], last["has_ended"]) == ("KeyError", True)
    [path] = tmp_path.glob("*.jsonl")
    assert "a secret" not in path.read_text()
    recording = read_recording(tmp_path)
    assert find_errors(recording) == {made_recorder.process: "KeyError"}
    recording.processes[0].settings["RAYMETER_MEMORY_SECONDS"] = "0.1"
    assert "not known whether memory is a problem" in memory.describe_answer([], recording)


def test_an_error_that_cannot_be_written_does_not_reach_the_program(made_recorder, monkeypatch):
    monkeypatch.setattr(made_recorder, "describe_itself", lambda: 1 / 0)
    calls.stop(ValueError("x"))
    assert calls.recorder is False
    monkeypatch.undo()


def test_an_error_while_nothing_is_recorded_is_only_printed(monkeypatch, capsys):
    monkeypatch.setattr(calls, "recorder", None)
    calls.stop(ValueError("x"))
    assert "recording ended in process" in capsys.readouterr().err


def test_containers_that_give_their_items_in_another_way_are_walked():
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros(10_000)
    for value in (Rows([array]), Cells((array,)), Table(rows=array)):
        assert identity.find_leaves(value) == [[array.ctypes.data, array.nbytes]]
