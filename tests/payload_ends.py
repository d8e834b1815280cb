"""All participants of a flow in one process, and what tests let happen to the messages between them."""

from pathlib import Path

import numpy as np
import torch

from common.flow.catalogue import online_dpo
from common.flow.flow import DRIVER, Edge, Flow, Task
from common.flow.message import Field, Message
from common.payload.inbox import Inbox
from common.payload.leaves import map_tensors
from common.payload.model import Model
from common.payload.outbox import Outbox
from common.payload.participant import Participant
from common.plan.options import Options
from common.plan.plan import Plan
from common.record.rows import transports
from common.transport.ring_participant import RingModel, RingParticipant

DEMO = online_dpo(batch_size=4, prompt_seq_len=256)
# Every dtype, tensors, lists and strings, with odd bytes, with gaps, of one item and of none.
FIELDS = Message((
    Field("tokens", "int64", (3, 5)),
    Field("scores", "float32", (3, 7)),
    Field("halves", "float16", (3,)),
    Field("mask", "bool", (2, 40)),
    Field("scalar", "float64"),
    Field("odd", "uint8", (13,)),
    Field("list", "float32", lengths=(3, 0, 4)),
    Field("words", "str", lengths=(5, 0, 9)),
    Field("numbers", "ints", lengths=(3, 0, 1)),
    Field("fractions", "floats", lengths=(1, 1)),
    Field("corner", "int32", (2, 3, 4), storage=(4, 5, 9)),
    Field("rows", "float64", lengths=(2, 3), storage=(4, 8)),
    Field("nothing", "uint8", (0, 4)),
    Field("no_items", "float32", lengths=(0, 0)),
    Field("no_letters", "str", lengths=(0, 0)),
))  # fmt: skip
RICH = Flow(
    "rich", "rich", FIELDS,
    (Task("policy", (DRIVER,), FIELDS),
     Task("reference", ("policy",), Message((Field("ref_logprobs", "float32", (3, 6)),))),
     Task("reward", ("policy", "reference"), FIELDS)),
    returns=("reward",),
)  # fmt: skip
# The judge runs where the policy does: once on the policy's own message alone, once on another actor's.
COLOCATED = Flow(
    "colocated", "colocated", FIELDS,
    (Task("policy", (DRIVER,), FIELDS, actor="one"),
     Task("critic", ("policy",), FIELDS, actor="one"),
     Task("reward", ("policy", "critic"), FIELDS, actor="two"),
     Task("judge", ("critic", "reward"), FIELDS, actor="one")),
    returns=("judge",),
)  # fmt: skip


class Ends:
    """The driver and all actors; function calls hand copies of messages from one to the next."""

    row, driver_class, actor_class = transports("torch")["memcpy"], Participant, Model

    def __init__(self, flow=DEMO, shared=Path(), **options):
        self.plan = Plan(self.row, Options(transport=self.row.transport, **options), flow, shared=shared)
        self.driver = self.driver_class(self.plan, DRIVER)
        self.actors = {name: self.actor_class(self.plan, name) for name in flow.actors}
        self.everybody = [self.driver, *self.actors.values()]
        digests = {sender: own for one in self.everybody for sender, own in one.own_digests().items()}
        for one in self.everybody:
            one.learn(digests)

    def emit(self, number):
        return self.driver.emit(number)

    def carry(self, payload):
        return map_tensors(torch.clone, payload)

    def receive(self, inputs):
        self.driver.receive(inputs)

    def arriving(self, sent, reader, change=None):
        """What is handed to a reader: of every edge change(its name, a copy of what was sent)."""
        found = [(str(edge), self.carry(sent[edge.source])) for edge in self.plan.flow.edges_to(reader)]
        return [change(*one) if change else one[1] for one in found]

    def send(self, number, change=None):
        """One trip."""
        sent = {DRIVER: self.emit(number)}
        for task in self.plan.flow.tasks:
            inputs = self.arriving(sent, task.name, change)
            sent[task.name] = self.actors[task.actor].forward_step(task.name, *inputs)
        self.receive(self.arriving(sent, DRIVER, change))

    def verify(self, first, last=None):
        """Wrong bytes by edge and field, where there are any; `mapped` has what the readers saw."""
        wrong, self.mapped = {}, {}
        for one in self.everybody:
            found, seen = one.verify(first, last or first)
            wrong |= found
            self.mapped |= seen
        return wrong


class RingEnds(Ends):
    """The same by handles of rings in the folder `shared`."""

    row, driver_class, actor_class = transports("graph")["mapped"], RingParticipant, RingModel

    def __init__(self, flow=DEMO, shared=Path(), **options):
        super().__init__(flow, shared, **options)
        for one in self.everybody:
            one.open_inputs()

    def emit(self, number):
        self.driver.emit(number)
        return self.driver.handle(DRIVER)

    def carry(self, handle):
        return handle

    def receive(self, handles):
        self.driver.receive(self.driver.open(DRIVER, handles))


def pipe(message, slots=3, keep=1):
    """Both ends of one edge, policy -> reward: its outbox and its inbox."""
    outbox = Outbox("policy", message, slots, torch.device("cpu"), False, None)
    return outbox, Inbox((Edge("policy", "reward", message),), "cpu", slots, keep)


def pour(outbox, inbox, number, change=lambda payload: payload):
    """A message through a pipe, changed on its way; the number that its reader makes of it."""
    payload = outbox.payload(outbox.stamp(number))
    return inbox.take([change(map_tensors(torch.clone, payload))])


def on(wanted, change):
    """Change what travels on one edge alone."""
    return lambda edge, payload: change(payload) if edge == wanted else payload


def flip(payload, name="", index=-1, leaf=-1):
    """One bit of one byte of a field changed; of a string one letter."""
    value = payload[name] if name else payload
    changed = value[leaf] if isinstance(value, list) else value
    if isinstance(changed, str):
        changed = changed[:index] + "~" + changed[index:][1:]
    elif isinstance(changed, list):
        numbers = np.array(changed)
        numbers.view(np.uint8)[index] ^= 1
        changed = numbers.tolist()
    else:
        row = changed.reshape(-1).clone().view(torch.uint8)
        row[index] ^= 1
        changed = row.view(changed.dtype).reshape(changed.shape)
    if isinstance(value, list):
        changed = [changed if one is value[leaf] else one for one in value]
    return payload | {name: changed} if name else changed
