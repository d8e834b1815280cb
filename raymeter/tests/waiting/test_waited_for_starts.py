# SPDX-License-Identifier: Apache-2.0
"""How long calls have waited while workers started, in programs with very many calls and starts."""

import random

import pytest
from made_programs import Builder
from raymeter.profile import starts
from raymeter.profile.events import Call, Task
from raymeter.profile.program import Phase
from raymeter.profile.starts import Start, Starting

COUNT = 300


class CountedPhases(list):
    """Phases that count how often one is looked at."""

    looked_at = 0

    def __getitem__(self, number):
        self.looked_at += 1
        return super().__getitem__(number)

    def __iter__(self):
        for phase in super().__iter__():
            self.looked_at += 1
            yield phase


class LateCall(Call):
    """A call after the time until which it counts, which is of no interest."""

    @property
    def end(self):
        raise AssertionError("it is not looked at")


def make_starting(monkeypatch: pytest.MonkeyPatch, phases: list[Phase]) -> Starting:
    found = {}
    for number, (begin, end) in enumerate(phases):
        found[str(number)] = Start(Task(str(number)), "node-1", begin, end)
    monkeypatch.setattr(starts, "find_starts", lambda program: found)
    return Starting(Builder().program())


def get(start: float, seconds: float) -> Call:
    return Call(event="get", start=start, seconds=seconds)


def test_only_starts_near_a_call_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = make_starting(monkeypatch, [(n + 0.2, n + 0.6) for n in range(COUNT)])
    starting.phases = CountedPhases(starting.phases)
    calls = [get(n + 0.1, 0.3) for n in range(COUNT)]
    assert starting.waited(calls, COUNT) == pytest.approx(0.2 * COUNT)
    assert starting.phases.looked_at <= 3 * COUNT


def test_no_call_after_the_time_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = make_starting(monkeypatch, [(1.0, 2.0), (3.0, 4.0)])
    late = LateCall(event="get", start=3.5, seconds=1.0)
    assert starting.waited([get(0.5, 10.0), late], 3.5) == pytest.approx(1.5)


@pytest.mark.parametrize("seed", range(20))
def test_the_wait_is_the_time_that_calls_and_starts_share(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times are whole seconds, and each second is compared."""
    chooser = random.Random(seed)
    spans = [sorted(chooser.sample(range(100), 2)) for _ in range(8)]
    starting = make_starting(monkeypatch, [(begin, end) for begin, end in spans])
    begin, end = sorted(chooser.sample(range(100), 2))
    until = chooser.randrange(100)
    shared = [
        time
        for time in range(begin, min(end, until))
        if any(low <= time < high for low, high in spans)
    ]
    assert starting.waited([get(begin, end - begin)], until) == len(shared)
