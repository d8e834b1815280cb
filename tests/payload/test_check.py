"""The check must see what a transport does wrong: all participants in one process, and function calls between them."""

import math
import tempfile
import time

import pytest
import torch
from payload_ends import COLOCATED, DEMO, FIELDS, RICH, Ends, flip, on, pipe, pour

from common.errors import RunFailed
from common.flow.catalogue import chain, ppo, scatter_gather
from common.flow.flow import with_trainer
from common.flow.message import ITEM_BYTES, flat
from common.payload import leaves
from common.payload.maps import SharedMappings
from common.payload.pattern import stamp_bytes
from common.plan.faults import Fault

K, EPISODE = 4, 10
TENSOR = torch.ones(8)
STAMPS = {field.name: count for field in FIELDS.fields if (count := stamp_bytes(field))}
FLOWS = [DEMO, RICH, COLOCATED, with_trainer(RICH), ppo(3, 5, 4), scatter_gather(9, 3), chain(1, 2), chain(13, 1)]
OPTIONS = [{}, {"message": "packed"}, {"copy_out": True}, {"in_flight": K}]
with_options = pytest.mark.parametrize("options", [*OPTIONS, OPTIONS[1] | OPTIONS[2] | OPTIONS[3]], ids=str)


def whole(*edges):
    """Every field of these edges wrong as a whole."""
    found = {f"{e}, {field.name}" if field.name else str(e): field.bytes for e in edges for field in e.message.fields}
    return {name: count for name, count in found.items() if count}


@pytest.fixture
def rich():
    return Ends(RICH)


@with_options
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: f"{flow.name} of {flow.query.bytes} B")
def test_trips_that_arrive_have_no_wrong_byte_and_are_copies(flow, options):
    ends = Ends(flow, **options)
    together = options.get("in_flight", 1)
    for first in range(1, 4 * together + 1, together):
        for number in range(first, first + together):
            ends.send(number)
        assert ends.verify(first, number) == {}
        assert ends.mapped == {str(edge): False for edge in flow.edges}


@with_options
@pytest.mark.parametrize("edge", list(map(str, DEMO.edges)))
def test_one_byte_that_changes_on_any_edge_is_one_wrong_byte_of_it(edge, options):
    ends = Ends(**options)
    for number, index in enumerate([0, 8, -1], 1):
        ends.send(number, on(edge, lambda payload, index=index: flip(payload, index=index)))
        assert ends.verify(number) == {edge: 1}


@pytest.mark.parametrize("message", [FIELDS, *map(flat, range(1, 17))], ids=lambda message: f"{message.bytes} B")
def test_every_byte_of_every_field_is_compared_and_counted_by_itself(message):
    outbox, inbox = pipe(message)
    for field in message.fields:
        for leaf, shape in enumerate(field.shapes):
            for index in range(math.prod(shape) * ITEM_BYTES[field.dtype]):
                inbox.last = inbox.checked = 0
                pour(outbox, inbox, 1, lambda payload, where=(field.name, index, leaf): flip(payload, *where))
                wrong, _ = inbox.verify(1, 1, {"policy": outbox.digests})
                assert wrong == {"policy -> reward" + f", {field.name}" * bool(field.name): 1}


def test_a_payload_that_is_overwritten_after_it_was_handed_over_is_seen():
    """As a mapped view shows the next trip's bytes when a transport reuses the buffer too early."""
    ends = Ends()
    ends.send(1)
    ((_, (payload,)),) = ends.actors["policy"].inboxes["policy"].held
    payload.copy_(ends.driver.emit(2))
    wrong = ends.verify(1)
    assert list(wrong) == ["driver -> policy"] and wrong["driver -> policy"] > 0.9 * DEMO.query.bytes


def stale(name):
    """In trips of an odd number, the stamp of the trip before."""
    return on("policy -> reward", lambda payload: flip(payload, name, 0, 0))


@pytest.mark.parametrize("name", STAMPS)
def test_a_stamp_that_was_late_is_wrong_though_the_payload_is_right_when_it_is_checked(rich, name):
    for number in (1, 2, 3):
        rich.send(number, stale(name) if number == 3 else None)
        if number < 3:
            assert rich.verify(number) == {}
    ((_, (payload, _)),) = rich.actors["reward"].inboxes["reward"].held
    payload[name] = rich.actors["policy"].outboxes["policy"].pool[0][name]
    assert rich.verify(3) == {f"policy -> reward, {name}": STAMPS[name]}


@pytest.mark.parametrize("name", STAMPS)
def test_a_stale_stamp_in_any_field_and_trip_of_an_episode_is_seen(name):
    for late in (11, 15, 17, 19):
        ends = Ends(RICH, in_flight=K, episode=EPISODE)
        for number in range(1, 21):
            ends.send(number, stale(name) if number == late else None)
            if number == EPISODE:
                assert ends.verify(1, EPISODE) == {}
        # Of what is held the one byte that differs counts, of what has gone the stamp.
        assert ends.verify(11, 20) == {f"policy -> reward, {name}": 1 if late > 20 - K else STAMPS[name]}


@pytest.mark.parametrize("flow", [RICH, COLOCATED], ids=lambda flow: flow.name)
@pytest.mark.parametrize("message", ["fields", "packed"])
def test_of_an_episode_every_byte_is_checked_of_the_trips_that_may_be_under_way(flow, message):
    ends = Ends(flow, in_flight=K, episode=EPISODE, message=message)
    (corner,) = (leaf for leaf in FIELDS.leaves if leaf.field.name == "corner")
    where = ("corner",) if message == "fields" else ("", corner.offset + corner.bytes - 1)
    struck = (3, 6, 7, 10)
    for number in range(1, EPISODE + 1):
        ends.send(number, on("policy -> reward", lambda payload: flip(payload, *where)) if number in struck else None)
    assert ends.verify(1, EPISODE) == {"policy -> reward, corner": len([n for n in struck if n > EPISODE - K])}


@pytest.mark.parametrize("in_flight", [1, K])
@pytest.mark.parametrize("numbers", [[1, 2, 3, 5, 6], [1, 2, 3, 4, 4, 5, 6]], ids=["dropped", "twice"])
def test_a_trip_of_an_episode_that_was_dropped_or_came_twice_is_wrong_as_a_whole(in_flight, numbers):
    ends = Ends(RICH, in_flight=in_flight, episode=6)
    for number in numbers:
        ends.send(number)
    wrong = ends.verify(1, 6)
    assert all(wrong[name] >= count for name, count in whole(*RICH.edges).items())
    for number in range(7, 13):
        ends.send(number)
    assert ends.verify(7, 12) == {}


def test_a_trip_that_was_dropped_is_wrong_as_a_whole_and_one_that_was_checked_cannot_pass_again(rich):
    rich.send(1)
    assert rich.verify(1) == {}
    assert rich.verify(1) == rich.verify(2) == whole(*RICH.edges)
    rich.send(3)
    assert rich.verify(3) == {}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tokens", lambda value: value.to(torch.float64)),
        ("tokens", lambda value: value.view(torch.float64)),
        ("tokens", lambda value: value.view(torch.uint8)),
        ("tokens", lambda value: value[:-1]),
        ("tokens", lambda value: value[:0]),
        ("tokens", lambda value: torch.cat([value, value])),
        ("tokens", lambda value: value.reshape(-1)),
        ("tokens", lambda value: value.t()),
        ("tokens", lambda value: value.sum()),
        ("mask", lambda value: value.view(torch.uint8)),
        ("list", lambda value: value[:-1]),
        ("list", lambda value: [*value, value[0]]),
        ("list", lambda value: torch.cat(value)),
        ("list", lambda value: [value[0], value[2], value[1]]),
        ("words", lambda value: value[:-1]),
        ("words", lambda value: "".join(value)),
        ("words", lambda value: [text.encode() for text in value]),
        ("words", lambda value: None),
    ],
)
def test_a_field_of_another_type_shape_or_length_is_wrong_as_a_whole(rich, name, change):
    rich.send(1, on("policy -> reward", lambda payload: payload | {name: change(payload[name])}))
    edge = f"policy -> reward, {name}"
    assert rich.verify(1) == {edge: whole(*RICH.edges)[edge]}


def test_a_string_of_another_length_is_wrong_as_a_whole(rich):
    for number, text in enumerate(["", "abcdé", "abcdefgh"], 1):
        rich.send(number, on("policy -> reward", lambda p, text=text: p | {"words": [text, *p["words"][1:]]}))
        assert rich.verify(number) == {"policy -> reward, words": 5}


def test_a_payload_that_is_not_contiguous_is_compared_as_it_reads():
    ends = Ends()
    ends.send(1, on("policy -> reward", lambda tensor: torch.stack([tensor, tensor], dim=1)[:, 0]))
    assert ends.verify(1) == {}


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
@pytest.mark.parametrize(
    "inputs",
    [[], [TENSOR] * 2, [None], [[1]], [ValueError("lost")], [TENSOR.numpy()], [b"abc"], [{}], [{"x": TENSOR}]],
    ids=str,
)
def test_anything_but_one_payload_an_edge_is_refused_by_the_name_of_the_edge(inputs, options):
    for flow in (DEMO, RICH):
        ends = Ends(flow, **options)
        with pytest.raises(RunFailed, match="driver -> policy"):
            ends.actors["policy"].forward_step("policy", *inputs)
        assert ends.verify(1) == whole(*flow.edges)


@pytest.mark.parametrize("value", [None, [], "x", [[TENSOR]]], ids=str)
def test_fields_that_are_no_tensors_are_refused_by_the_name_of_the_edge(rich, value):
    with pytest.raises(RunFailed, match="driver -> policy"):
        rich.actors["policy"].forward_step("policy", dict.fromkeys((field.name for field in FIELDS.fields), value))


@pytest.mark.parametrize("change", [lambda buffer: buffer[:-1], lambda buffer: torch.cat([buffer, buffer])])
def test_a_packed_message_of_another_length_is_refused_by_the_name_of_the_edge(change):
    with pytest.raises(RunFailed, match="policy -> reward"):
        Ends(RICH, message="packed").send(1, on("policy -> reward", change))


def test_copy_out_gives_every_reader_bytes_of_its_own():
    """What changes after it was handed over does not change the reader's copy, though several are held."""
    ends, handed = Ends(RICH, copy_out=True, in_flight=K), []
    for number in range(1, K + 1):
        ends.send(number, lambda _, payload: handed.append(payload) or payload)
    for payload in handed:
        leaves.map_tensors(torch.Tensor.zero_, payload)
    assert ends.verify(1, K) == {}


def test_the_copy_that_copy_out_makes_is_not_the_suites_own_work(monkeypatch):
    """It is what the reader asked for, so it is in the trip and not in harness_seconds."""
    ends, copy = Ends(copy_out=True), leaves.copy
    monkeypatch.setattr(leaves, "copy", lambda *given: (time.sleep(0.02), copy(*given))[1])
    reward = ends.actors["reward"]
    inputs = ends.arriving({name: ends.actors[name].emit(1, name) for name in ("policy", "reference")}, "reward")
    start = time.perf_counter()
    reward.receive(inputs, "reward")
    assert 0 < reward.harness_seconds <= time.perf_counter() - start - 2 * 0.02
    ends.driver.emit(1)  # before the clock
    assert ends.driver.harness_seconds == 0


def test_a_task_that_reads_only_its_own_actors_message_emits_the_number_of_that():
    """Also when the actor has taken the next message before it runs."""
    ends = Ends(COLOCATED, in_flight=2)
    one = ends.actors["one"]
    for number in (1, 2):
        one.forward_step("policy", ends.carry(ends.driver.emit(number)))
    assert [int(one.forward_step("critic")["tokens"][0, 0]) for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
@pytest.mark.parametrize("what", ["flip", "stale"])
def test_a_fault_is_seen_on_the_edges_of_the_task_that_it_strikes_and_no_others(what, options):
    ends = Ends(RICH, inject=Fault("policy", 3, what), **options)
    for number in (1, 2, 3):
        ends.send(number)
        wrong = ends.verify(number)
        assert bool(wrong) == (number == 3)
    assert {name.partition(",")[0] for name in wrong} == {"policy -> reference", "policy -> reward"}
    assert what == "stale" or set(wrong.values()) == {1}


def test_memory_of_this_process_is_no_mapping_of_shared_memory_and_a_file_there_is():
    assert not SharedMappings().hold(torch.ones(1024).data_ptr())
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.truncate(2**20)
        tensor = torch.from_file(file.name, shared=True, size=2**17, dtype=torch.int64)
        maps = SharedMappings()
        assert maps.hold(tensor.data_ptr()) and maps.hold(tensor[-1:].data_ptr())
        outbox, inbox = pipe(FIELDS)
        pour(outbox, inbox, 1, lambda payload: payload | {"tokens": tensor[:15].view(3, 5)})
        assert inbox.verify(1, 1, {"policy": outbox.digests})[1] == {"policy -> reward": None}  # some were, some not
    maps.spans = [(10, 20), (30, 40)]
    assert [address for address in range(50) if maps.hold(address)] == [*range(10, 20), *range(30, 40)]
