"""Check what is measured of nodes, without a cluster."""

import io
import socket
import threading
import time
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest

from dataflow.errors import RunFailed
from dataflow.nodes import agent, nodes
from dataflow.records.schema import NodeCosts

PLACED = {"driver": 0, "policy": 0, "reference": 1, "reward": 1}


@pytest.fixture
def observer():
    """Return an agent of this machine's loopback interface, outside of Ray."""
    observer = agent.NodeAgent.__new__(agent.NodeAgent)
    observer.address, observer.interface = "127.0.0.1", "lo"
    return observer


@pytest.fixture
def observed(monkeypatch):
    """Return the nodes of a cluster of four, of which two have workers. Ray answers every call with 0.1."""
    monkeypatch.setattr(nodes, "ray", Mock(get=lambda calls: 0.1))
    observed = object.__new__(nodes.Nodes)
    observed.ids, observed.environments = [str(node) * 56 for node in range(4)], [{}, {}, {}, {}]
    observed.worker_nodes = {"driver": 0, "policy": 2, "reference": 2, "reward": 2}
    observed.agents, observed.addresses, observed.interfaces, observed.links = {}, {}, {}, []
    return observed


@pytest.mark.parametrize("connections", [1, 4])
def test_a_link_is_timed_until_the_last_byte_is_read(observer, connections, monkeypatch):
    port = observer.listen()
    receiving = threading.Timer(0.5, observer.receive, [connections])

    def read_clock():
        if not receiving.ident:
            receiving.start()  # it begins to read so long after the clock has started
        return time.perf_counter()

    monkeypatch.setattr(agent, "time", SimpleNamespace(perf_counter=read_clock))
    assert observer.send("127.0.0.1", port, connections, 200_000) > 0.2
    receiving.join(5)
    assert not receiving.is_alive()


def test_a_link_sends_pages_that_differ_from_the_page_of_zeros(observer, monkeypatch):
    """The kernel gives bytes(n) one page of zeros n / 4096 times, which is no memory of its own."""
    process, count, resident = psutil.Process(), 64 * 2**20, []

    class Connection(io.BytesIO):
        def sendall(self, data):
            resident.append(process.memory_info().rss)

        shutdown = recv = lambda *_: None

    monkeypatch.setattr(agent.socket, "create_connection", lambda _: Connection())
    before = process.memory_info().rss
    observer.send("", 0, 1, count)
    assert resident[0] - before > 0.9 * count


def test_an_agent_counts_what_its_node_does_and_the_counters_of_an_unknown_interface_are_unknown(observer):
    for interface in ("lo", ""):
        observer.interface = interface
        observer.begin()
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
            costs = observer.end()
        assert (costs.received_bytes or 0) > 0 if interface else costs.received_bytes is None
        assert costs.busy_cores >= 0


@pytest.mark.parametrize("drift", [0.0, 20e-6, -50e-6])
def test_times_of_other_nodes_are_moved_to_the_drivers_clock_with_its_drift(observed, monkeypatch, drift):
    """A drift of 20 ppm is 12 ms in ten minutes. The driver's clock advances 0.2 ms with each reading."""
    now = 1000.0

    def read_clock():
        nonlocal now
        now += 0.0002
        return now

    def of_node(seconds):  # 5 s ahead, and faster or slower
        return seconds + 5 + drift * (seconds - 1000)

    monkeypatch.setattr(nodes, "time", SimpleNamespace(perf_counter=read_clock))
    nodes.ray.get = lambda calls: [call() for call in calls] if isinstance(calls, list) else calls()
    agents = [SimpleNamespace(clock=Mock(remote=lambda: lambda: of_node(read_clock())), begin=Mock(),
                              end=Mock(remote=lambda: NodeCosts)) for _ in range(2)]  # fmt: skip
    observed.agents, observed.clocks, observed.worker_nodes = {0: agents[0], 1: agents[1]}, {}, PLACED
    observed.copies = [[0.5], [0.6]]
    observed.read_clocks()
    observed.begin()
    now += 600
    costs = observed.end()
    for seconds in (1000.5, 1300.0, 1599.5):
        assert observed.driver_seconds("reward", of_node(seconds)) == pytest.approx(seconds, abs=0.0005)
        assert observed.driver_seconds("policy", seconds) == seconds  # on the driver's node
    assert abs(costs["1"].clock_offset_seconds - 5) <= costs["1"].clock_error_seconds < 0.001
    assert (costs["0"].clock_offset_seconds, costs["0"].clock_error_seconds) == (0, 0)
    assert [cost.memcpy_seconds for cost in costs.values()] == [[0.5], [0.6]]


def test_only_nodes_with_workers_are_prepared_and_need_the_same_torch(observed):
    described = [(f"10.0.0.{node}", f"eth{node}", {"versions": {"torch": "2.13"}}) for node in (0, 2)]
    nodes.ray.get = lambda calls: described
    observed.prepare()
    assert [*observed.agents] == [0, 2] and [bool(known) for known in observed.environments] == [1, 0, 1, 0]
    assert observed.network_settings(2)["GLOO_SOCKET_IFNAME"] == "eth2"
    described[1][2]["versions"] = {"torch": "2.12"}
    with pytest.raises(RunFailed, match=r"the nodes have torch 2\.12, 2\.13: install the same version"):
        observed.prepare()


def test_each_link_that_messages_cross_is_timed_and_its_first_pass_does_not_count(observed, make_plan):
    observed.agents = {node: Mock(**{"__ray_call__": Mock()}) for node in (0, 2)}
    observed.addresses, save = {0: "first", 2: "other"}, Mock()
    observed.read_clocks = lambda: None
    observed.measure(make_plan("graph", "--transport", "shm"), lambda _: [0.5], save)
    assert [(link.source, link.reader, link.connections, link.seconds) for link in observed.links] == [
        (0, 2, 1, 3 * [0.1]), (0, 2, 4, 3 * [0.1]), (2, 0, 1, 3 * [0.1]), (2, 0, 4, 3 * [0.1]),
    ]  # fmt: skip
    assert {call.args[0] for call in observed.agents[2].send.remote.call_args_list} == {"first"}
    assert save.call_count == 16  # the monitor sees progress
