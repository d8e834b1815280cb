# SPDX-License-Identifier: Apache-2.0
"""A slow message of which only the time was written is like the others of its line, and never taken for a repeat."""

from pathlib import Path

from raymeter.causes.repeated import find_repeats
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
