# SPDX-License-Identifier: Apache-2.0
"""Reads by NIXL from the memory of a sender: no message is torn, and what a reader keeps never changes."""

import gc
import multiprocessing
import time

import pytest
import torch
from conftest import require_nixl

from dataflow.errors import RunFailed
from dataflow.flows.flow import Edge
from dataflow.flows.message import flat_message
from dataflow.transports import nixl_memory
from dataflow.transports.nixl_memory import (
    Agent,
    KeptTargets,
    Reader,
    Sender,
    reused_targets,
    split_regions,
)

require_nixl()

BYTES = 2**16 + 13
EDGES = tuple(Edge("policy", reader, flat_message(BYTES)) for reader in ("reference", "reward"))
SLOTS = 3
TIMEOUT = 0.05  # seconds that a sender waits for readers that do not read


class Pair:
    """A sender and its two readers in one process, each with an agent."""

    def __init__(self, keep=False, threads=1, slots=SLOTS, timeout=TIMEOUT):
        agent = Agent("policy-actor", threads)
        self.slots = [torch.zeros(BYTES, dtype=torch.uint8) for _ in range(slots)]
        slots_of_sender = [[slot] for slot in self.slots]
        self.sender = Sender(agent, "policy", slots_of_sender, EDGES, timeout)
        self.readers = []
        for edge in EDGES:
            own = Agent(edge.reader, threads)
            own.add(agent.metadata())
            targets = (
                KeptTargets(own, edge.message) if keep else reused_targets(own, edge.message, 1)
            )
            reader = Reader(own, edge, "policy-actor", targets, timeout=10)
            reader.try_to_read(self.sender.handle())
            self.readers.append(reader)

    def send(self, number):
        """Write a message whose bytes all equal its number, and return its handle."""
        self.sender.acquire(number)
        self.slots[number % len(self.slots)][:] = number
        return self.sender.handle()


def has(tensor, number):
    return bool((tensor.view(torch.uint8) == number).all())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("keep", [False, True])
def test_each_reader_gets_every_byte_of_each_message(keep, threads):
    pair = Pair(keep, threads)
    for number in range(1, 20):
        handle = pair.send(number)
        for reader in pair.readers:
            assert has(reader.read(handle), number)


@pytest.mark.parametrize("slow", [0, 1])
def test_a_sender_waits_until_the_slowest_reader_has_read_and_names_it(slow):
    pair = Pair()
    handles = []
    for number in range(1, SLOTS + 1):
        handle = pair.send(number)
        handles.append(handle)
        pair.readers[1 - slow].read(handle)
    reader = pair.readers[slow]
    with pytest.raises(
        RunFailed, match=f"{reader.edge.reader} did not read message 1 of policy in 0.05 s"
    ):
        pair.send(SLOTS + 1)
    assert has(reader.read(handles[0]), 1)
    pair.send(SLOTS + 1)
    assert has(reader.read(handles[1]), 2)


def test_without_this_wait_a_reader_gets_another_message(monkeypatch):
    def begin(sender, number):
        sender.newest = number

    monkeypatch.setattr(Sender, "acquire", begin)
    pair = Pair()
    first = pair.send(1)
    for number in range(2, SLOTS + 2):
        pair.send(number)
    assert has(pair.readers[0].read(first), SLOTS + 1)


def send_at_full_speed(pipe, count, waits):
    """Send so many messages as fast as readers allow it, or as fast as possible."""
    agent = Agent("policy-actor")
    slot = torch.zeros(2**22, dtype=torch.uint8)
    edge = Edge("policy", "reward", flat_message(slot.nbytes))
    sender = Sender(agent, "policy", [[slot]], [edge], timeout=60)
    pipe.send((agent.metadata(), sender.handle()))
    pipe.recv()
    for number in range(1, count + 1):
        if waits:
            sender.acquire(number)
        sender.newest = number
        slot[:] = number
        pipe.send(sender.handle())
    pipe.recv()


@pytest.mark.parametrize("waits", [True, False])
def test_no_message_is_torn_if_the_sender_waits(waits):
    """The sender is another process and writes at full speed. Without the wait, readers get parts of two messages."""
    context = multiprocessing.get_context("spawn")
    pipe, own_pipe = context.Pipe()
    count = 100
    process = context.Process(target=send_at_full_speed, args=(own_pipe, count, waits))
    process.start()
    try:
        metadata, handle = pipe.recv()
        agent = Agent("reward")
        agent.add(metadata)
        edge = Edge("policy", "reward", flat_message(2**22))
        targets = reused_targets(agent, edge.message, 1)
        reader = Reader(agent, edge, "policy-actor", targets, timeout=10)
        reader.try_to_read(handle)
        pipe.send("begin")
        right = 0
        for number in range(1, count + 1):
            right += has(reader.read(pipe.recv()), number)
        pipe.send("end")
        process.join()
        assert process.exitcode == 0
    finally:
        process.kill()
    if waits:
        assert right == count
    else:
        assert right < count


def test_a_sender_that_has_died_is_an_error_for_new_readers_and_for_those_that_know_it():
    context = multiprocessing.get_context("spawn")
    pipe, own_pipe = context.Pipe()
    process = context.Process(target=send_at_full_speed, args=(own_pipe, 1, True))
    process.start()
    metadata, handle = pipe.recv()
    agent = Agent("reward")
    agent.add(metadata)
    edge = Edge("policy", "reward", flat_message(2**22))
    targets = reused_targets(agent, edge.message, 1)
    reader = Reader(agent, edge, "policy-actor", targets, timeout=10)
    process.kill()
    process.join()
    with pytest.raises(RunFailed, match="policy -> reward: reward cannot read its message by NIXL"):
        reader.read(["policy", 1, handle[2]])
    with pytest.raises(
        RunFailed, match=r"late: NIXL finds no way to a sender .*: all processes must"
    ):
        Agent("late").add(metadata)


def test_what_a_reader_keeps_never_changes_and_what_it_frees_is_used_again():
    pair = Pair(keep=True)
    (reader, other), kept = pair.readers, []
    addresses = set()
    for number in range(1, 12):
        handle = pair.send(number)
        received = reader.read(handle)
        addresses.add(other.read(handle).data_ptr())
        part = (
            received[5:].numpy() if number % 2 else received.view(torch.int8)[:7]
        )  # all that is left of the message
        kept.append((number, part))
        del received
        assert all((number == part).all() for number, part in kept)
    assert len(addresses) == 1
    assert len({number for number, _ in kept}) == 11
    before = len(reader.targets.free)
    kept.clear()
    del part
    gc.collect()
    assert len(reader.targets.free) - before == 11


def test_without_keep_the_next_message_overwrites_the_last_one():
    pair = Pair()
    first = pair.readers[0].read(pair.send(1))
    second = pair.readers[0].read(pair.send(2))
    assert has(first, 2) and first.data_ptr() == second.data_ptr()


@pytest.mark.parametrize(
    ("change", "number", "source"),
    [
        (lambda handle: ["reward", *handle[1:]], 2, "reward"),  # another sender's
        (lambda handle: [handle[0], 1, handle[2]], 1, "policy"),  # was read before
        (lambda handle: [handle[0], 3, handle[2]], 3, "policy"),  # one is missing
    ],
)
def test_a_handle_of_another_message_is_rejected(change, number, source):
    pair = Pair()
    reader = pair.readers[0]
    reader.read(pair.send(1))
    with pytest.raises(
        RunFailed, match=f"reference received the handle of message {number} of {source}"
    ):
        reader.read(change(pair.send(2)))


def test_a_message_of_another_size_and_memory_that_is_not_registered_are_errors():
    pair = Pair()
    agent = pair.sender.agent
    smaller = torch.zeros(BYTES - 1, dtype=torch.uint8)
    elsewhere = torch.zeros(BYTES, dtype=torch.uint8)
    unknown = [(elsewhere.data_ptr(), BYTES)]
    for regions in (agent.register([smaller]), unknown):
        with pytest.raises(
            RunFailed, match="policy -> reference: reference cannot read its message by NIXL"
        ):
            pair.readers[0].read(["policy", 1, regions])


def test_a_first_read_that_needs_the_help_of_the_sender_is_an_error_that_says_what_to_do(
    monkeypatch,
):
    """Over TCP, NIXL reads only while the sender calls it as well."""
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setattr(nixl_memory, "FIRST_READ_SECONDS", 0.5)
    with pytest.raises(
        RunFailed, match=r"longer than 0.501\d* s: all processes must be of one user"
    ):
        Pair()


@pytest.mark.parametrize(
    ("message_bytes", "timeout", "seconds"),
    [(8, 60, 10), (2**20, 60, 10.02), (10**9, 60, 30), (10**10, 600, 210), (10**10, 60, 60)],
)
def test_a_first_read_may_take_longer_if_the_message_is_large(message_bytes, timeout, seconds):
    """Up to the time of any read, half of --timeout, which a user can raise for a machine that is slower still."""
    found = nixl_memory.first_read_seconds(flat_message(message_bytes), timeout)
    assert found == pytest.approx(seconds, rel=1e-3)


def test_a_large_message_that_takes_longer_than_a_small_one_may_is_still_read(monkeypatch):
    """On a machine that is so slow that the read of 64 KiB takes as long as a small one may take altogether."""
    monkeypatch.setattr(nixl_memory, "FIRST_READ_SECONDS", 0.2)
    monkeypatch.setattr(nixl_memory, "SLOWEST_BYTES_PER_SECOND", BYTES / 10)
    wait = Agent._wait

    def wait_longer(agent, request, state, timeout):
        time.sleep(0.3)
        assert wait(agent, request, state, timeout) == "DONE"
        return "DONE" if timeout > 0.3 else "too late"

    monkeypatch.setattr(Agent, "_wait", wait_longer)
    Pair()


@pytest.mark.parametrize("sizes", [(1,), (4096,), (4097, 3), (0, 8192), (2**20 + 1, 5, 12_288)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_of_regions_have_all_of_their_bytes_once(sizes, count):
    regions = [(index * 2**30, size) for index, size in enumerate(sizes)]
    parts = split_regions(regions, count)
    assert min(size for _, size in parts) > 0
    for address, size in regions:
        end = address
        for begin, part_bytes in sorted(parts):
            if address <= begin < address + 2**30:
                assert begin == end
                end = begin + part_bytes
        assert end == address + size


def test_threads_get_about_as_many_bytes():
    regions = [(0, 2**20), (2**30, 2**21)]
    parts = split_regions(regions, 2)
    assert [size for _, size in parts] == [2**19, 2**20, 2**19, 2**20]
