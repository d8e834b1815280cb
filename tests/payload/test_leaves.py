"""A message as torch has it, in every form in which it travels: what comes back is what went."""

import itertools
import pickle

import pytest
import torch
from payload_ends import FIELDS

from common.flow.message import Field, Message, flat
from common.payload.forms import from_bytes, from_wire, pack, places, to_bytes, to_wire, unpack
from common.payload.inbox import read_stamp, reader
from common.payload.leaves import copy, leaves_of, like
from common.payload.outbox import Outbox
from common.payload.pattern import stamp

CPU = torch.device("cpu")
NUMBER = Field("number", "int64", (2,))
SHORT = [Field("a", "uint8", (3,)), Field("b", "float32", lengths=(3, 0, 1)), Field("c", "bool", (0, 2)),
         Field("d", "str", lengths=(1, 0)), Field("e", "float16", lengths=(0, 0))]  # fmt: skip
# Every two of them at the end of a message, where nothing is padded.
MESSAGES = [flat(1), flat(13), flat(16), FIELDS, *(Message((NUMBER, *two)) for two in itertools.permutations(SHORT, 2))]


def sent(message, packed=False, memory=None):
    outbox = Outbox("policy", message, 3, CPU, packed, memory)
    return outbox, outbox.payload(outbox.stamp(4))


def same(one, other, message):
    for field in message.fields:
        for mine, theirs in zip(leaves_of(one, field), leaves_of(other, field), strict=True):
            if field.python:
                assert mine == theirs
            else:
                assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
                assert mine.numpy().tobytes() == theirs.numpy().tobytes()


def by_pack(payload, message):
    buffer = torch.ones(message.packed_bytes, dtype=torch.uint8)
    pack(payload, message, places(buffer, message))
    return unpack(buffer, message)


WAYS = {
    "packed": by_pack,
    "bytes": lambda payload, message: from_bytes(to_bytes(payload), message, "cpu"),
    "tensors alone": lambda payload, message: from_wire(to_wire(payload, message), message),
    "copied into memory of its own": lambda payload, message: copy(payload, like(message, CPU)),
    "pickled": lambda payload, message: pickle.loads(pickle.dumps(payload)),
}


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: "-".join(f.name for f in message.fields) or "flat")
def test_what_arrives_is_what_was_sent(message, way):
    _, payload = sent(message)
    same(WAYS[way](payload, message), payload, message)


@pytest.mark.parametrize("message", MESSAGES[:4], ids=lambda message: str(message.bytes))
def test_a_packed_outbox_sends_its_payload_as_one_buffer_and_the_stamp_with_it(message):
    outbox, buffer = sent(message, packed=True)
    assert (buffer.dim(), buffer.nbytes) == (1, message.packed_bytes)
    same(unpack(buffer, message), outbox.pool[1], message)
    _, plain = sent(message)
    same(unpack(buffer, message), plain, message)


@pytest.mark.parametrize("packed", [False, True])
def test_payloads_lie_in_the_memory_that_was_given(packed):
    memory = [torch.ones(FIELDS.packed_bytes, dtype=torch.uint8) for _ in range(3)]
    _, payload = sent(FIELDS, packed, lambda slot: memory[slot])
    first = payload if packed else payload["tokens"]
    assert first.data_ptr() == memory[1].data_ptr()
    _, plain = sent(FIELDS)
    same(unpack(memory[1], FIELDS), plain, FIELDS)


@pytest.mark.parametrize("extent", [{"shape": (8, 10)}, {"lengths": (8, 9)}], ids=["a corner", "rows"])
def test_a_view_ships_all_of_its_storage_when_it_is_pickled(extent):
    """As ChatLearn's action_logprobs do."""
    field = Field("view", "float32", storage=(100, 1000), **extent)
    _, payload = sent(Message((field,)))
    assert len(pickle.dumps(payload)) > 400_000
    assert len({leaf.untyped_storage().data_ptr() for leaf in leaves_of(payload, field)}) == 1


@pytest.mark.parametrize("shape", [(), (13,), (3, 5), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("gap", [0, 2])
def test_a_stamp_is_written_where_it_is_read(shape, gap):
    field = Field("view", "int32", shape, storage=tuple(count + gap for count in shape))
    message = Message((field,))
    _, payload = sent(message)
    (leaf,) = leaves_of(payload, field)
    mark = stamp(field, 4)
    assert leaf.contiguous().numpy().tobytes()[: len(mark)] == read_stamp(leaf, len(mark), reader(len(mark))) == mark
