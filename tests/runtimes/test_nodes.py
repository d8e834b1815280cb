"""Check what is measured of nodes, without a cluster."""

import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from common.errors import RunFailed
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


@pytest.mark.parametrize(("runtime", "transport", "copies"), [("graph", "shm", 1), ("torch", "gloo", 2)])
def test_bytes_that_cross_are_counted_in_each_direction(make_plan, runtime, transport, copies):
    plan = make_plan(runtime, "--transport", transport, "--flow", "online-dpo", "--payload", "448MiB")
    sizes = {str(edge): edge.bytes for edge in plan.sent_flow.edges}
    assert plan.crossings(PLACED).bytes_by_link([7]) == {
        (0, 1): copies * sizes["policy -> reward"], (1, 0): sizes["reward -> driver"],
    }  # fmt: skip
    assert plan.crossings(dict.fromkeys(PLACED, 0)).bytes_by_link([7]) == {}


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
