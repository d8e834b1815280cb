# SPDX-License-Identifier: Apache-2.0
"""Of a long program, the steps in the middle are looked at, and the output says how many."""

import pytest
from made_programs import STEPS, make_loop, make_profile, make_steps, write_recording
from raymeter.advice import advise
from raymeter.memory.stores import find_spilling
from raymeter.profile import excerpt
from raymeter.profile.events import Store
from raymeter.profile.reader import read_recording
from raymeter.report import terminal
from raymeter.simulate.without_data import without_data


def test_a_short_program_is_looked_at_as_a_whole():
    program, steps = make_loop(), make_steps()
    assert excerpt.take_excerpt(program, steps) == (program, steps)


def test_of_a_long_program_the_steps_in_the_middle_are_kept_with_all_that_belongs_to_them(
    monkeypatch,
):
    monkeypatch.setattr(excerpt, "MAX_EVENTS", 8)
    monkeypatch.setattr(excerpt, "MIN_STEPS", 2)
    program, steps = make_loop(), make_steps()
    part, middle = excerpt.take_excerpt(program, steps)
    assert middle.times == steps.times[2:4]
    assert STEPS == 6 and len(part.recording.calls) < len(program.recording.calls)
    whole = without_data(program, steps)
    kept = without_data(part, middle)
    assert kept.saved_seconds == pytest.approx(whole.saved_seconds, rel=0.05)


def test_what_is_known_of_messages_of_this_kind_is_kept(monkeypatch):
    monkeypatch.setattr(excerpt, "MAX_EVENTS", 8)
    monkeypatch.setattr(excerpt, "MIN_STEPS", 2)
    program = make_loop()
    for message in program.messages[1:]:
        message.sent.fields = []
    part, _ = excerpt.take_excerpt(program, make_steps())
    assert part.messages[0].sent.fields
    assert part.messages[0].call in part.recording.calls


def test_only_spilling_during_the_steps_that_are_kept_counts(monkeypatch):
    monkeypatch.setattr(excerpt, "MAX_EVENTS", 8)
    monkeypatch.setattr(excerpt, "MIN_STEPS", 2)
    program, steps = make_loop(), make_steps()
    for number in range(8):
        time = 0.95 + number / 10
        program.recording.stores.append(Store(time, capacity=100, spill_seconds=0.01 * number))
    program.recording.stores[0].copy_rate = 5.0
    part, middle = excerpt.take_excerpt(program, steps)
    assert middle.times == steps.times[2:4]
    spilling = find_spilling(part.recording.stores)
    # The samples from 1.05 to 1.55: those around the steps, and around what the first one needs.
    assert spilling.spill_seconds == pytest.approx(0.05)
    assert spilling.copy_rate == 5.0
    assert len(program.recording.stores) == 8


def test_the_output_says_how_many_steps_it_is_about(tmp_path, monkeypatch):
    monkeypatch.setattr(excerpt, "MAX_EVENTS", 8)
    monkeypatch.setattr(excerpt, "MIN_STEPS", 2)
    write_recording(make_loop(), tmp_path)
    text = " ".join(terminal.render(advise(read_recording(tmp_path))).split())
    assert "This is about 2 of 6 steps." in text
    text = terminal.render(make_profile(make_loop(), make_steps()))
    assert "This is about" not in text


def test_the_steps_are_those_whose_tasks_are_known(monkeypatch):
    monkeypatch.setattr(excerpt, "MAX_EVENTS", 6)
    monkeypatch.setattr(excerpt, "MIN_STEPS", 2)
    program, steps = make_loop(), make_steps()
    program.recording.tasks = program.recording.tasks[-2:]
    _, last = excerpt.take_excerpt(program, steps)
    assert last.times == steps.times[4:]


def test_what_was_not_written_is_said():
    profile = make_profile(make_loop(), make_steps())
    cost = profile.program.recording.processes[0].recorder
    cost.left_out_events, cost.left_out_tasks = 1_200, 50_000
    assert "stand for the others" not in terminal.render(profile)
    cost.left_out_messages = 9
    text = " ".join(terminal.render(profile).split())
    assert (
        "Of very many large messages, only some were recorded; they stand for the others." in text
    )
    assert "1,200 later events are left out. The times of 50,000 tasks are left out." in text
