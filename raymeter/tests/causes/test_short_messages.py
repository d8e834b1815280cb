# SPDX-License-Identifier: Apache-2.0
"""A slow message of which only the time was written is like the others of its line, and never taken for a repeat."""

from pathlib import Path

from raymeter.causes.repeated import find_repeats, with_content
from raymeter.profile.events import Sent
from raymeter.profile.program import Message
from raymeter.profile.reader import Recording
from raymeter.profile.short_messages import complete_short


def make(**fields) -> Sent:
    return Sent(process="made", line="train.py:3", type="list", bytes=1_000, seconds=0.1, **fields)


def test_a_short_message_has_the_pickle_of_the_others():
    before = make(is_short=True)
    described = make(inband_bytes=800, buffers=2, content=5)
    after = make(is_short=True)
    complete_short(Recording(Path("made"), sent=[before, described, after]))
    assert [(sent.inband_bytes, sent.buffers) for sent in (before, after)] == [(800, 2), (800, 2)]


def test_short_messages_are_no_repeats_of_each_other():
    sent = [make(content=5, is_same=None), make(content=5, is_same=True)]
    sent += [make(is_short=True), make(is_short=True)]
    repeats = find_repeats([Message(item, None) for item in sent])
    assert [message.sent for message in repeats] == [sent[1]]


def make_results(is_hidden: bool) -> list[Message]:
    """Return results of a task that computes equal arrays again: only those in full tell that they are others."""
    sent = []
    for number in range(3):
        full = make(content=5, token=2 + number, is_hidden_in_short=is_hidden)
        full.is_same = True if number else None
        sent.append(full)
        sent.append(make(content=5, token=1 if is_hidden else 2 + number, is_short=True))
    complete_short(Recording(Path("made"), sent=sent))
    return [Message(item, None) for item in sent]


def test_a_short_result_is_no_repeat_if_its_largest_array_was_not_looked_at():
    results = make_results(is_hidden=True)
    assert find_repeats(results) == []
    assert with_content(results) == results[::2]


def test_a_short_result_is_a_repeat_if_its_largest_array_is_the_same():
    results = make_results(is_hidden=False)
    assert find_repeats(results) == results[1::2]
    assert with_content(results) == results


def test_a_short_argument_is_a_repeat_whatever_its_arrays_are():
    sent = [
        make(content=5, scope=1, token=2, is_hidden_in_short=True),
        make(content=5, scope=2, token=3, is_same=True),
    ]
    sent.append(make(content=5, scope=3, is_short=True))
    complete_short(Recording(Path("made"), sent=sent))
    assert sent[-1].content == 5
