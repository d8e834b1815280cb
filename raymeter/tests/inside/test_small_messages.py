# SPDX-License-Identifier: Apache-2.0
"""Small messages are not described, and cost no reading of the thread's clock and page faults."""

import pickle

import pytest
from raymeter.inside import by_class, calls, recorder


class Result:
    """What Ray's serialisation returns."""

    contained_object_refs = ()

    def __init__(self, total_bytes):
        self.total_bytes = total_bytes


@pytest.fixture
def readings(tmp_path, monkeypatch):
    """Return the list of readings that were made."""
    made = recorder.Recorder(tmp_path, 1_000, [])
    taken = []
    read = calls.readings
    monkeypatch.setattr(calls, "recorder", made)
    monkeypatch.setattr(calls, "small_in_row", by_class.ByClass())
    monkeypatch.setattr(calls, "readings", lambda: taken.append(True) or read())
    yield taken
    made.close()


@pytest.fixture
def written(monkeypatch):
    """Return the list of the messages that were written."""
    messages = []
    monkeypatch.setattr(calls, "write_sent", lambda *arguments: messages.append(arguments[2]))
    return messages


def serialise(value, size):
    wrapper = calls.make_serialise_wrapper(lambda _, __: Result(size))
    return wrapper(None, value)


def test_a_number_is_never_read_and_others_only_until_they_are_known_to_be_small(readings, written):
    for _ in range(200):
        serialise(5, 100)
    assert not readings
    for _ in range(200):
        serialise({"action": 1}, 100)
    assert len(readings) == calls.MANY_SMALL
    assert not written


def test_a_large_message_after_many_small_ones_is_written_and_the_next_one_is_read_again(
    readings, written
):
    for _ in range(200):
        serialise({}, 100)
    before = len(readings)
    serialise({"x": 1}, 5_000)
    assert len(readings) == before  # it was taken for a small one
    serialise({"x": 2}, 5_000)
    assert len(readings) == before + 2
    assert written == [{"x": 1}, {"x": 2}]


def test_the_bytes_of_small_messages_are_counted_for_the_call_that_sends_them(readings):
    scope = calls.recorder.local.scope = recorder.CallScope(1, None)
    serialise({"action": 1}, 100)
    serialise({"action": 2}, 20)
    serialise(5, 7)  # of a type that is never large
    assert scope.small_bytes == 120
    serialise({"action": 3}, 5_000)
    assert scope.small_bytes == 120


def test_a_small_message_that_is_read_costs_no_reading(readings):
    wrapper = calls.make_deserialise_wrapper(lambda *_: "value")
    assert wrapper(None, b"small", b"", None) == "value"
    assert not readings


def test_later_messages_of_a_kind_are_described_more_and_more_seldom():
    described = [count for count in range(1, 1_025) if calls.is_described(count)]
    assert described == [1, 2, 3, 64, 128, 256, 512, 1_024]


def test_ray_gets_each_buffer_and_none_is_in_the_pickle(readings):
    kept = []
    value = [bytearray(b"x" * 100), bytearray(b"y" * 100)]
    wrapped = [pickle.PickleBuffer(part) for part in value]
    proxy = calls.PickleProxy(pickle)
    inband = proxy.dumps(wrapped, protocol=5, buffer_callback=kept.append)
    assert [bytes(buffer.raw()) for buffer in kept] == [bytes(part) for part in value]
    assert b"xx" not in inband and calls.parts.buffers == kept
    calls.parts.clear()


class EndingResult(Result):
    """A message during which another thread ends recording: when its references are looked for."""

    @property
    def contained_object_refs(self):
        calls.recorder = False
        return ()


class EndingData(bytes):
    """Data during whose reading another thread ends recording."""

    def __len__(self):
        calls.recorder = False
        return super().__len__()


def test_a_message_is_sent_and_read_while_another_thread_ends_recording(readings, monkeypatch):
    made = calls.recorder
    result = EndingResult(100)
    send = calls.make_serialise_wrapper(lambda *_: result)
    assert send(None, {"x": 1}) is result
    assert calls.recorder is False
    monkeypatch.setattr(calls, "recorder", made)
    read = calls.make_deserialise_wrapper(lambda *_: "value")
    assert read(None, EndingData(b"small"), b"", None) == "value"
    assert calls.recorder is False
