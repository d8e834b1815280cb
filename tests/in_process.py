# SPDX-License-Identifier: Apache-2.0
"""Run the endpoints of a flow in one process, and change the messages between them on purpose."""

from collections import ChainMap, Counter
from pathlib import Path

import numpy as np
import torch

from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.endpoints.actor import Actor, Endpoint, pass_messages
from dataflow.endpoints.inbox import Inbox, Views
from dataflow.endpoints.payload import Outbox
from dataflow.endpoints.tensors import map_tensors, to_array
from dataflow.flows.catalogue import online_dpo
from dataflow.flows.flow import DRIVER, Edge, Flow, Task
from dataflow.flows.message import Field, Message
from dataflow.plan.options import Options
from dataflow.plan.plan import Plan
from dataflow.transports.shared_ring import RingActor, RingEndpoint

DEMO = online_dpo(batch_size=4, prompt_seq_len=256)
# Every dtype, tensors, lists and strings: with odd numbers of bytes, with gaps, with one item and with none.
FIELDS = Message((
    Field("tokens", "int64", (3, 5)),
    Field("scores", "float32", (3, 7)),
    Field("halves", "float16", (3,)),
    Field("brain", "bfloat16", (3, 3)),
    Field("brains", "bfloat16", lengths=(3, 1)),
    Field("mask", "bool", (2, 40)),
    Field("scalar", "float64"),
    Field("odd", "uint8", (13,)),
    Field("list", "float32", lengths=(3, 0, 4)),
    Field("words", "str", lengths=(5, 0, 9)),
    Field("numbers", "ints", lengths=(3, 0, 1)),
    Field("fractions", "floats", lengths=(1, 1)),
    Field("corner", "int32", (2, 3, 4), storage=(4, 5, 9)),
    Field("views", "float64", lengths=(2, 3), storage=(4, 8)),
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
# Actor "one" runs three tasks. "critic" reads only a message of the same actor, "judge" only one of another actor.
COLOCATED = Flow(
    "colocated", "colocated", FIELDS,
    (Task("policy", (DRIVER,), FIELDS, actor="one"),
     Task("critic", ("policy",), FIELDS, actor="one"),
     Task("reward", ("policy", "critic"), FIELDS, actor="two"),
     Task("judge", ("critic", "reward"), FIELDS, actor="one")),
    returns=("judge",),
)  # fmt: skip


class LocalEndpoints:
    """The driver and all actors. Function calls pass copies of the messages."""

    transport, driver_class, actor_class = TRANSPORTS["torch memcpy"], Endpoint, Actor

    def __init__(self, flow=DEMO, shared_folder=Path(), codec=None, **options):
        options = Options(transport=self.transport.name, **options)
        self.plan = Plan(self.transport, options, flow, shared_folder=shared_folder)
        self.driver = self.driver_class(self.plan, DRIVER)
        named = {"codec": codec} if codec else {}
        self.actors = {name: self.actor_class(self.plan, name, **named) for name in flow.actors}
        self.all = [self.driver, *self.actors.values()]
        digests = dict(ChainMap(*(endpoint.payload_digests() for endpoint in self.all)))
        for endpoint in self.all:
            endpoint.learn_digests(digests)

    def make_query(self, number):
        return self.driver.make_payload(number)

    def carry(self, payload):
        return map_tensors(torch.clone, payload)

    def receive(self, inputs):
        self.driver.receive(inputs)

    def run(self, number, change=None):
        """Run one iteration. Readers get a copy of what was sent, or change(name of the edge, copy)."""

        def carry(payload, edge):
            return change(str(edge), self.carry(payload)) if change else self.carry(payload)

        self.receive(
            pass_messages(self.plan.task_flow, self.actors, carry, self.make_query(number))
        )

    def verify(self, first, last=None):
        """Return the wrong bytes by edge and field. Afterwards, `views` tells by edge whether readers had views."""
        wrong, self.views = {}, {}
        for endpoint in self.all:
            wrong_of_endpoint, views = endpoint.verify(first, last or first)
            wrong |= wrong_of_endpoint
            self.views |= views
        return wrong


class LocalRingEndpoints(LocalEndpoints):
    """The same with handles of rings in `shared_folder`."""

    transport, driver_class, actor_class = TRANSPORTS["graph mapped"], RingEndpoint, RingActor

    def __init__(self, flow=DEMO, shared_folder=Path(), **options):
        super().__init__(flow, shared_folder, **options)
        for endpoint in self.all:
            endpoint.open_inputs()

    def make_query(self, number):
        self.driver.make_payload(number)
        return self.driver.handle(DRIVER)

    def carry(self, handle):
        return handle

    def receive(self, handles):
        self.driver.receive(self.driver.open_all(DRIVER, handles))


class LocalEdge:
    """One edge, policy -> reward: its outbox and its inbox."""

    def __init__(self, message, slots=3, keep=1):
        self.outbox = Outbox("policy", message, slots, torch.device("cpu"))
        self.inbox = Inbox((Edge("policy", "reward", message),), torch.device("cpu"), keep)

    def send(self, number, change=lambda payload: payload):
        """Send a message, changed before it arrives; return the number that its reader finds."""
        payload = self.outbox.make(number)
        return self.inbox.take([change(map_tensors(torch.clone, payload))])

    def verify(self, first, last=None):
        """Return the wrong bytes. Afterwards, `views` tells whether the reader had views."""
        wrong, views = Counter(), Views()
        self.inbox.verify(first, last or first, {"policy": self.outbox.digests}, wrong, views)
        self.views = views.by_edge
        return {name: count for name, count in wrong.items() if count}


def on_edge(name, change):
    """Return a function for LocalEndpoints.run that changes the payload of one edge."""
    return lambda edge, payload: change(payload) if edge == name else payload


def flip_bit(payload, name="", index=-1, item=-1):
    """Return the payload with one changed bit in one byte of a field; in a string, with one changed letter."""
    value = payload[name] if name else payload
    changed = value[item] if isinstance(value, list) else value
    if isinstance(changed, str):
        changed = changed[:index] + "~" + changed[index:][1:]
    else:
        array = np.array(changed) if isinstance(changed, list) else to_array(changed).copy()
        array.reshape(-1).view(np.uint8)[index] ^= 1
        changed = (
            array.tolist()
            if isinstance(changed, list)
            else torch.from_numpy(array).view(changed.dtype)
        )
    if isinstance(value, list):
        changed = [changed if old is value[item] else old for old in value]
    return payload | {name: changed} if name else changed
