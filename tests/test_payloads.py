import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT

from common.payload.pattern import POOL_SIZE, count_wrong_bytes, digest, make_payload, stamp, write_stamp

SENDERS = ("driver", "policy", "reference", "reward")
BYTES = 4096
ODD = (1, 3, 7, 9, 13, 4095)  # bytes that 8 does not divide


def sent(trip, sender="policy", count=BYTES):
    payload = make_payload(sender, trip % POOL_SIZE, count)
    write_stamp(payload, trip)
    return payload


def wrong_bytes(arrived, trip, sender="policy"):
    return count_wrong_bytes(arrived, trip, sender, digest(sent(trip, sender)))


def test_every_process_makes_the_same_payload():
    program = "from common.payload.pattern import *; print(digest(make_payload('policy', 1, 4096)))"
    other = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(other.stdout) == digest(make_payload("policy", 1, BYTES))


def test_payloads_of_all_senders_and_slots_differ():
    payloads = [make_payload(sender, slot, BYTES) for sender in SENDERS for slot in range(POOL_SIZE)]
    assert len({payload.tobytes() for payload in payloads}) == len(payloads)
    assert len({digest(payload) for payload in payloads}) == len(payloads)


def test_a_payload_has_the_bytes_asked_for_in_int64():
    payload = make_payload("policy", 0, BYTES)
    assert (payload.nbytes, payload.dtype, payload.ndim) == (BYTES, np.int64, 1)


def test_a_payload_does_not_compress():
    """Constant bytes would flatter a transport that compresses."""
    values, counts = np.unique(make_payload("policy", 0, 2**20).view(np.uint8), return_counts=True)
    assert len(values) == 256
    assert counts.max() < 2 * counts.min()


@pytest.mark.parametrize("trip", [1, 2, 3, 4, 1000])
def test_right_data_has_no_wrong_byte(trip):
    assert wrong_bytes(sent(trip), trip) == 0


@pytest.mark.parametrize("index", [0, 7, 8, BYTES // 2, BYTES - 1])
def test_one_flipped_byte_counts_as_one(index):
    arrived = sent(5)
    arrived.view(np.uint8)[index] ^= 0x10
    assert wrong_bytes(arrived, 5) == 1


def test_flipped_bytes_are_counted_one_by_one():
    arrived = sent(5)
    arrived.view(np.uint8)[100:110] ^= 0xFF
    assert wrong_bytes(arrived, 5) == 10


@pytest.mark.parametrize("age", range(1, 2 * POOL_SIZE + 1))
def test_what_an_earlier_trip_sent_is_wrong(age):
    """At multiples of the pool's size all but the stamp is the same."""
    assert wrong_bytes(sent(10 - age), 10) > 0


def test_what_another_sender_sent_is_wrong():
    assert wrong_bytes(sent(5, "reference"), 5) > BYTES / 2


def test_two_payloads_in_turn_never_hide_a_stale_one():
    """Transports that alternate between two buffers show the message of two trips ago."""
    assert POOL_SIZE > 2
    assert wrong_bytes(sent(10 - 2), 10) > BYTES / 2


def test_a_payload_of_the_stamp_alone_is_checked():
    payload = make_payload("policy", 1, 8)
    payload[0] = 4
    assert count_wrong_bytes(payload, 4, "policy", digest(payload)) == 0
    assert count_wrong_bytes(payload, 5, "policy", digest(payload)) > 0


@pytest.mark.parametrize("count", ODD)
def test_a_payload_of_odd_bytes_has_them_all_in_uint8(count):
    payload = make_payload("policy", 0, count)
    assert (payload.nbytes, payload.dtype, payload.ndim) == (count, np.uint8, 1)


@pytest.mark.parametrize("count", [*ODD, 8, 16])
def test_every_byte_of_a_payload_of_any_size_is_checked(count):
    expected_digest = digest(sent(5, count=count))
    for index in range(min(count, 64)):
        arrived = sent(5, count=count)
        assert count_wrong_bytes(arrived, 5, "policy", expected_digest) == 0
        arrived.view(np.uint8)[index] ^= 0x10
        assert count_wrong_bytes(arrived, 5, "policy", expected_digest) == 1


@pytest.mark.parametrize("count", [*ODD, 8])
@pytest.mark.parametrize("age", range(1, 2 * POOL_SIZE + 1))
def test_what_an_earlier_trip_sent_is_wrong_at_any_size(count, age):
    arrived = sent(10 - age, count=count)
    assert count_wrong_bytes(arrived, 10, "policy", digest(sent(10, count=count))) > 0


@pytest.mark.parametrize("count", [1, 3, 7, 8, 9, 16])
@pytest.mark.parametrize("trip", [1, 255, 256, 70_000])
def test_the_stamp_is_the_trip_in_as_many_bytes_as_there_are(count, trip):
    payload = make_payload("policy", 0, count)
    behind = payload.tobytes()[8:]
    write_stamp(payload, trip)
    assert int.from_bytes(payload.tobytes()[:8], "little") == stamp(trip, count) == trip % 256 ** min(8, count)
    assert payload.tobytes()[8:] == behind


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16])
def test_a_tensor_is_stamped_as_an_array_is(count):
    array = make_payload("policy", 0, count)
    tensor = torch.from_numpy(array.copy())
    write_stamp(array, 70_000)
    write_stamp(tensor, 70_000)
    assert tensor.numpy().tobytes() == array.tobytes()
