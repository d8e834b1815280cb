# SPDX-License-Identifier: Apache-2.0
"""Short and long messages of one line: the written ones stand for the time of all, whichever of them are written."""

import random
from pathlib import Path

import pytest
from raymeter.inside import recorder
from raymeter.profile.events import LeftOut, Process, RecorderCost, Sent
from raymeter.profile.reader import Recording
from raymeter.profile.weights import weigh_messages

KEY = ("sent",)
COUNT = 4_000
PAUSE = 0.002  # seconds between two messages
SHORT, LONG = 0.0005, 0.05  # seconds of a message
CPU_SHARE = 0.5  # of the time that passes


class Clock:
    """The clocks that the recorder reads."""

    def __init__(self):
        self.seconds = 1_000.0

    def time(self):
        return self.seconds

    def process_time(self):
        return CPU_SHARE * self.seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(recorder, "now", made.time)
    monkeypatch.setattr(recorder.time, "process_time", made.process_time)
    return made


def send_all(folder: Path, clock: Clock, lengths: list[float], own_share: float) -> Recording:
    """Return what is recorded of messages that take so long, and of which writing takes a share of that."""
    made = recorder.Recorder(folder, 1, [])
    sent = []
    for seconds in lengths:
        start = clock.seconds
        clock.seconds += seconds
        is_short = made.writes_short_message(KEY, seconds, clock.seconds)
        if is_short or not made.leaves_out_message(KEY, seconds, clock.seconds):
            event = {"event": "sent", "start": start, "seconds": seconds, "type": "dict"}
            event["is_short"] = is_short
            made.write_message(KEY, event)
            spend(made, is_short, 0.0002 + own_share * seconds)
            event.pop("event")
            sent.append(Sent(process="made", **event))
        clock.seconds += PAUSE
    left_out = [LeftOut(**item) for item in made.describe_itself()["last_left_out"]]
    made.close()
    cost = RecorderCost(left_out_messages=made.left_out_messages, last_left_out=left_out)
    return Recording(folder, processes=[Process("made", recorder=cost)], sent=sent)


def spend(made: recorder.Recorder, is_short: bool, seconds: float) -> None:
    if is_short:
        made.spend_on_short_message(0.0002)
    else:
        made.spend_on_message(KEY, seconds)


def mixed(seed: int, share: float) -> list[float]:
    numbers = random.Random(seed)
    return [LONG if numbers.random() < share else SHORT for _ in range(COUNT)]


@pytest.mark.parametrize("own_share", [0.001, 0.05], ids=["slow ones are described", "in short"])
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_number_and_time_are_those_of_all_messages(tmp_path, clock, own_share, share):
    estimated = 0.0
    known = 0.0
    for seed in range(4):
        lengths = mixed(seed, share)
        recording = send_all(tmp_path / str(seed), clock, lengths, own_share)
        assert len(recording.sent) < 0.6 * COUNT
        weigh_messages(recording)
        assert sum(sent.weight for sent in recording.sent) == pytest.approx(COUNT)
        assert min(sent.weight for sent in recording.sent) >= 1.0
        estimated += sum(sent.weight * sent.seconds for sent in recording.sent)
        known += sum(lengths)
    assert estimated == pytest.approx(known, rel=0.03)


def test_messages_that_take_all_the_same_stand_for_equally_many(tmp_path, clock):
    recording = send_all(tmp_path, clock, COUNT * [SHORT], 0.05)
    weigh_messages(recording)
    weights = [sent.weight for sent in recording.sent]
    assert sum(weights) == pytest.approx(COUNT)
    assert max(weights) == pytest.approx(min(weights))
