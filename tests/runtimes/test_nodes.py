"""Check what is measured of nodes, without a cluster."""

import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from common.errors import RunFailed
from common.records.schema import NodeCosts
from common.run.data_path import find_missing_bytes
from common.runtimes import nodes

PLACED = {"driver": 0, "policy": 0, "reference": 1, "reward": 1}


@pytest.mark.parametrize("connections", [1, 4])
def test_a_link_is_timed_until_the_last_byte_is_read(connections):
    agent = object.__new__(nodes.NodeAgent)
    agent.address = "127.0.0.1"
    port = agent.listen()
    receiving = threading.Timer(0.3, agent.receive, [connections])
    receiving.start()
    assert agent.send("127.0.0.1", port, connections, 20_000_000) > 0.2
    receiving.join(5)
    assert not receiving.is_alive()


def test_bytes_that_cross_are_counted_in_each_direction(make_plan):
    plan = make_plan("graph", "--transport", "shm", "--flow", "online-dpo", "--payload", "448MiB")
    flow, crossing = plan.sent_flow, nodes.crossing_bytes(plan, PLACED)
    sizes = {str(edge): edge.bytes for edge in flow.edges}
    assert crossing == {
        (0, 1): sum(size for edge, size in sizes.items() if edge.startswith("policy ->")),
        (1, 0): sizes["reward -> driver"],
    }
    assert nodes.crossing_bytes(plan, dict.fromkeys(PLACED, 0)) == {}


def test_a_node_that_received_too_little_fails_the_run(make_plan):
    plan = make_plan("graph", "--transport", "shm", "--payload", "448MiB")
    expected = max(edge.bytes for edge in plan.sent_flow.edges_from("policy"))  # one message for two readers
    enough = {"0": NodeCosts(received_bytes=10**9), "1": NodeCosts(received_bytes=2 * expected)}
    assert find_missing_bytes(plan, enough, PLACED, 2) is None
    less = enough | {"1": NodeCosts(received_bytes=expected)}
    assert "node 1 received" in find_missing_bytes(plan, less, PLACED, 2)


def test_an_actor_on_another_node_fails_the_run():
    check = partial(nodes.Nodes.check, None, {"policy": 0, "reward": 1})
    check({"policy": 0, "reward": 1})
    with pytest.raises(RunFailed, match=r"^reward runs on node 0, and node 1 was requested"):
        check({"policy": 0, "reward": 0})


def test_versions_that_differ_are_named():
    here = {"python": "3.11.7", "versions": {"ray": "2.60.0", "torch": "2.13.0"}}
    nodes.check_versions([here, here])
    for name, value in (("python", "3.12.1"), ("torch", "2.12.0")):
        there = here | {"python": value} if name == "python" else here | {"versions": {**here["versions"], name: value}}
        with pytest.raises(RunFailed, match=f"node 1 has {name} {value}, and the driver's node has"):
            nodes.check_versions([here, there])


def test_the_offset_of_a_clock_is_within_its_error(monkeypatch):
    monkeypatch.setattr(nodes.ray, "get", lambda call: call())
    agent = SimpleNamespace(clock=SimpleNamespace(remote=lambda: lambda: time.perf_counter() + 5))
    offset, error = nodes.clock_offset(agent)
    assert abs(offset - 5) <= error < 0.01
