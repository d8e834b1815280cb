# SPDX-License-Identifier: Apache-2.0
"""The endpoints of `graph nixl-read`: every byte of all kinds of messages, the nodes of its graph, and its flags."""

from collections import ChainMap
from types import SimpleNamespace

import pytest
import torch
from conftest import reject_options, require_nixl
from in_process import COLOCATED, DEMO, FIELDS, RICH, LocalEndpoints, on_edge

from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, Field, Message
from dataflow.trace import spans
from dataflow.transports import graph
from dataflow.transports.nixl_read import NixlReadActor, NixlReadEndpoint

require_nixl()

K = 3  # iterations in flight
TENSORS = Message(tuple(field for field in FIELDS.fields if not field.is_python))
LISTS = Flow(
    "lists",
    "lists of tensors",
    TENSORS,
    (Task("one", (DRIVER,), TENSORS), Task("two", ("one", DRIVER), TENSORS)),
    ("two",),
)
WEIGHTS = Message(
    (
        Field("bias", "float32", (7,), is_parameter=True),
        Field("weight", "bfloat16", (500, 7), is_parameter=True),
    )
)
UPDATES = Flow(
    "updates",
    "updates of weights",
    ACKNOWLEDGEMENT,
    (Task("trainer", (DRIVER,), WEIGHTS),
     Task("rollout-1", ("trainer",), ACKNOWLEDGEMENT), Task("rollout-2", ("trainer",), ACKNOWLEDGEMENT)),
    ("rollout-1", "rollout-2"),
)  # fmt: skip
MODULE = "dataflow.transports.nixl_memory"
PEERS = pytest.mark.study("external_systems")
MODES = [  # message, flags, iterations between verifications
    ("fields", {}, 1),
    ("packed", {"keep": True, "in_flight": K}, K),
    ("packed", {"threads": 2}, 20),
]


class LocalReadActor(NixlReadActor):
    def forward_step(self, task, *handles):
        inputs = [self.pass_through(task, handle) for handle in handles]
        return super().forward_step(task, *inputs)


class LocalReadEndpoints(LocalEndpoints):
    """The driver and all actors, each with an agent of NIXL. Function calls pass the handles."""

    transport = TRANSPORTS["graph nixl-read"]
    driver_class = NixlReadEndpoint
    actor_class = LocalReadActor

    def __init__(self, flow=DEMO, **options):
        super().__init__(flow, **options)
        metadata = {endpoint.name: endpoint.metadata() for endpoint in self.all}
        handles = ChainMap(*(endpoint.first_handles() for endpoint in self.all))
        for endpoint in self.all:
            endpoint.connect(metadata)
            endpoint.try_to_read(handles)

    def make_query(self, number):
        super().make_query(number)
        return self.driver.handle(DRIVER)

    def carry(self, handle):
        return handle

    def receive(self, handles):
        self.driver.receive(self.driver.read_all(DRIVER, handles))


@pytest.mark.parametrize("flow", [DEMO, LISTS, RICH, COLOCATED], ids=lambda flow: flow.name)
@pytest.mark.parametrize(("message", "options", "group"), MODES, ids=str)
def test_messages_arrive_unchanged_as_copies(flow, message, options, group):
    if flow in (RICH, COLOCATED):
        message = "packed"  # they have strings
    endpoints = LocalReadEndpoints(flow, message=message, **options)
    for first in range(1, 2 * group + 1, group):
        for number in range(first, first + group):
            endpoints.run(number)
        assert endpoints.verify(first, number) == {}
        assert endpoints.views == dict.fromkeys(map(str, flow.edges), False)


def test_no_endpoint_writes_into_memory_that_a_reader_has_not_read():
    endpoints = LocalReadEndpoints(timeout=0.1)
    policy = endpoints.actors["policy"]
    slots = len(policy.outboxes["policy"].pool)
    for number in range(1, slots + 1):
        policy.make_payload(number, "policy")
        endpoints.actors["reference"].read("reference", policy.handle("policy"))
    text = "reward did not read message 1 of policy in 0.05 s"
    with pytest.raises(RunFailed, match=text):
        policy.make_payload(slots + 1, "policy")


def test_a_changed_byte_in_the_memory_of_a_sender_is_found():
    endpoints = LocalReadEndpoints()
    endpoints.run(1)
    assert endpoints.verify(1) == {}
    slot = endpoints.actors["policy"].outboxes["policy"].buffers[2]
    slot[-1] ^= 1
    endpoints.run(2)
    assert endpoints.verify(2) == {"policy -> reference": 1, "policy -> reward": 1}


def test_parameters_are_read_from_where_their_sender_keeps_them():
    endpoints = LocalReadEndpoints(UPDATES)
    for number in (1, 2, 3):
        endpoints.run(number)
        for endpoint in endpoints.all:
            endpoint.end_group(number)
        assert endpoints.verify(number) == {}


def test_a_trace_shows_each_read_and_each_wait_of_a_sender(monkeypatch):
    """The wrapped functions are restored, because other tests of this process use them."""
    own = {}
    for stage, described in spans.STAGES.items():
        names = [name for name in described.get("functions", ()) if name.startswith(MODULE)]
        own[stage] = described | {"functions": names}
        for name in names:
            owner, attribute = spans.find_owner(name)
            monkeypatch.setattr(owner, attribute, getattr(owner, attribute))
    monkeypatch.setattr(spans, "STAGES", own)
    monkeypatch.setattr(spans, "wrapped_functions", [])
    endpoints = LocalReadEndpoints(trace=True)
    recorded = []
    monkeypatch.setattr(spans, "recorded", recorded)
    endpoints.run(1)
    stages = [stage for _, stage, *_ in recorded]
    assert stages.count("copy") == len(DEMO.edges)
    assert stages.count("wait") == len({edge.source for edge in DEMO.edges})


@pytest.mark.parametrize(("handle", "error"), [
    (["nobody", 1, []], "policy received a handle of nobody"),
    (["reference", 1, []], "policy received a handle of reference"),
    (["driver", 5, []], "policy received the handle of message 5 of driver, and expected"),
    (None, "policy expected a handle, got NoneType"),
    (torch.ones(8), "policy expected a handle, got Tensor"),
])  # fmt: skip
def test_what_is_no_handle_of_the_next_message_is_rejected(handle, error):
    with pytest.raises(RunFailed, match=error):
        LocalReadEndpoints().run(1, on_edge("driver -> policy", lambda _: handle))


def test_each_input_is_read_by_a_call_of_its_own(monkeypatch):
    """So a reader of two messages reads the first one before the second one is there."""
    bound = []

    class Method(SimpleNamespace):
        def bind(self, task, *inputs):
            bound.append((self.name, task, inputs))
            return (self.name, task)

    class FakeActor:
        def __getattr__(self, name):
            return Method(name=name)

    monkeypatch.setattr(graph, "MultiOutputNode", list)
    graph.bind(DEMO, dict.fromkeys(DEMO.actors, FakeActor()), None, passes_each=True)
    of_reward = [call for call in bound if call[1] == "reward"]
    assert of_reward == [
        ("pass_through", "reward", (("forward_step", "policy"),)),
        ("pass_through", "reward", (("forward_step", "reference"),)),
        ("forward_step", "reward", (("pass_through", "reward"),) * 2),
    ]


@pytest.mark.parametrize(("runtime", "flags", "reason"), [
    ("graph", ["--transport", "nixl-read", "--flow", "grpo"], "carries tensors only: give --message packed"),
    ("graph", ["--transport", "nixl-read", "--flow", "ppo", "--as-sent"], "contiguous tensors only: leave it out"),
    pytest.param(
        "graph", ["--transport", "nixl-read", "--flow", "weights", "--message", "indices"],
        "graph nixl-read sends only memory that it has registered before: leave it out",
        marks=pytest.mark.study("weights")),
    ("graph", ["--transport", "nixl-read", "--address", "127.0.0.1:6379"], "runs on one machine"),
    ("graph", ["--transport", "shm", "--keep"], "--keep: readers of graph shm may keep what they get without it"),
    pytest.param("peers", ["--transport", "nixl-read", "--keep"],  # its next message overwrites the last one
                 "--keep: readers of peers nixl-read have no choice of what they may keep", marks=PEERS),
    pytest.param("peers", ["--transport", "nixl-read", "--flow", "grpo"],
                 "carries tensors only: give --message packed", marks=PEERS),
    pytest.param("peers", ["--transport", "nixl-write", "--flow", "ppo", "--as-sent"],
                 "contiguous tensors only: leave it out", marks=PEERS),
])  # fmt: skip
def test_what_it_cannot_carry_is_rejected_in_one_line(no_gpu, runtime, flags, reason):
    assert reason in reject_options(runtime, *flags)


@pytest.mark.parametrize("runtime", ["graph", pytest.param("peers", marks=PEERS)])
@pytest.mark.parametrize(("flag", "reason"), [
    (["--zero-copy"], "cannot be measured with it"),
    (["--copy-in"], "does not send what its producers write into shared memory"),
    (["--copy-out"], "own a copy already"),
    (["--reuse-buffers"], "do not fetch references"),
    (["--one-by-one"], "do not fetch references"),
    (["--registration", "pool"], "has no choice of when memory is registered"),
    (["--device", "cuda"], "no GPU found"),
    (["--placement", "spread"], "a private cluster has one node"),
])  # fmt: skip
def test_flags_of_other_transports_are_rejected_with_a_reason_that_is_true(
    no_gpu, runtime, flag, reason
):
    """It registers memory and its readers read, so these are no reasons."""
    assert reason in reject_options(runtime, "--transport", "nixl-read", *flag)
