# SPDX-License-Identifier: Apache-2.0
"""The cost of recording is measured in turns, with recording switched off and on in the same processes."""

import sys
import time
from types import SimpleNamespace
from typing import Any

import measure_cost
import pytest


class FakeRecorder:
    """What a switch changes of a recorder."""

    def __init__(self) -> None:
        self.started_at = 100.0
        self.cpu_seconds = 1.0
        self.cpu_at_start = 0.5
        self.window_start = 100.0
        self.flushed = 0
        self.own = 0.0

    def all_own_seconds(self) -> float:
        self.own += 0.25
        return self.own

    def flush(self) -> None:
        self.flushed += 1

    def start_window(self, at: float) -> None:
        self.window_start = at


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that has the recorder of this process."""
    module = SimpleNamespace(recorder=FakeRecorder())
    monkeypatch.setitem(sys.modules, measure_cost.CALLS, module)
    return module


def test_a_switch_gives_the_recorder_back_and_no_budget_for_the_time_between(
    calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = calls.recorder
    times = iter([1000.0, 1003.0, 1003.0])
    cpu_times = iter([20.0, 22.0])
    monkeypatch.setattr(measure_cost.time, "time", lambda: next(times))
    monkeypatch.setattr(measure_cost.time, "process_time", lambda: next(cpu_times))
    switch = measure_cost.Switch()
    switch.switch_off()
    assert calls.recorder is False
    assert recorder.flushed == 1
    switch.switch_on()
    assert calls.recorder is recorder
    assert recorder.started_at == 103.0
    assert recorder.cpu_seconds == 3.0
    assert recorder.cpu_at_start == 2.5
    assert recorder.window_start == 1003.0


class FakeActor:
    """An actor in this process, which notes what it is told."""

    def __init__(self) -> None:
        self.told: list[bool] = []
        self.set_recording = SimpleNamespace(remote=self.told.append)
        self.own_seconds = SimpleNamespace(remote=lambda: 1.0)


def test_windows_take_turns_and_recording_goes_on_at_the_end(
    calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure_cost, "LEAD_SECONDS", 0.001)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda ref: ref))
    states: list[bool] = []
    actor = FakeActor()

    def play_round() -> None:
        states.append(bool(calls.recorder))
        time.sleep(0.002)

    turns = measure_cost.measure_turns(measure_cost.Playing(play_round, actor), 3, 0.001)
    assert (
        states == [True] * 2 + [False] * 4 + [True] * 4 + [False] * 2
    )  # with the time before each window
    assert len(turns.plain) == len(turns.recorded) == 3
    assert actor.told == [False, True] * 3
    assert turns.own_seconds == pytest.approx(0.25)
    assert calls.recorder


def test_a_program_is_judged_by_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = measure_cost.Window(rounds=10, seconds=2.0, cpu_seconds=1.0)
    recorded = measure_cost.Window(rounds=5, seconds=2.0, cpu_seconds=0.6)
    turns = measure_cost.Turns([plain], [recorded], 4.0, own_seconds=0.1, recording_seconds=2.0)

    def run(name: str, pairs: int, seconds: float, is_recorded: bool) -> measure_cost.Run:
        if is_recorded:
            return measure_cost.Run(turns, 9.0, "0.4 %")
        return measure_cost.Run(measure_cost.Turns(), 7.0, "")

    monkeypatch.setattr(measure_cost, "run", run)
    cost = measure_cost.measure("small calls", 2, 1, 2.0)
    assert cost.plain_ms == pytest.approx([100.0, 100.0])
    assert cost.recorded_ms == pytest.approx([120.0, 120.0])
    assert cost.once_recorded_seconds == [9.0, 9.0]
    assert cost.once_plain_seconds == [7.0, 7.0]
    assert cost.per_second == pytest.approx(1000.0)
    assert cost.own_shares == pytest.approx([0.05, 0.05])
    assert cost.said == "0.4 %"
