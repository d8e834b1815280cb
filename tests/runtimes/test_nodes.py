"""Check what is measured of nodes, without a cluster."""

import io
import threading
from functools import partial
from types import SimpleNamespace

import psutil
import pytest

from dataflow.errors import RunFailed
from dataflow.nodes import nodes
from dataflow.records.schema import NodeCosts

PLACED = {"driver": 0, "policy": 0, "reference": 1, "reward": 1}


@pytest.mark.parametrize("connections", [1, 4])
def test_a_link_is_timed_until_the_last_byte_is_read(connections):
    agent = object.__new__(nodes.NodeAgent)
    agent.address, agent.received_bytes = "127.0.0.1", 0
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


class Clocks:
    """The driver's clock, which advances 0.2 ms with each reading, and a node's, which is ahead and faster."""

    def __init__(self, ahead, drift):
        self.now, self.ahead, self.drift = 1000.0, ahead, drift

    def perf_counter(self):
        self.now += 0.0002
        return self.now

    def of_node(self, seconds):
        return seconds + self.ahead + self.drift * (seconds - 1000)

    @property
    def agent(self):
        clock = SimpleNamespace(remote=lambda: lambda: self.of_node(self.perf_counter()))
        counters = SimpleNamespace(remote=lambda: lambda: nodes.Counters(self.now, None, None, 0.0, 0.0))
        return SimpleNamespace(clock=clock, counters=counters)


@pytest.fixture
def clocks(monkeypatch):
    """clocks(ahead, drift) -> the clocks, and nodes of which node 1 has a clock of its own."""

    def get(calls):
        return [call() for call in calls] if isinstance(calls, list) else calls()

    def make(ahead, drift):
        clocks, observed = Clocks(ahead, drift), object.__new__(nodes.Nodes)
        monkeypatch.setattr(nodes, "time", SimpleNamespace(perf_counter=clocks.perf_counter))
        monkeypatch.setattr(nodes, "ray", SimpleNamespace(get=get))
        observed.agents, observed.clocks = {0: clocks.agent, 1: clocks.agent}, {}
        observed.worker_nodes, observed.costs = PLACED, {"0": NodeCosts(), "1": NodeCosts()}
        return clocks, observed

    return make


def test_the_offset_of_a_clock_is_within_its_error(clocks):
    clocks, _ = clocks(5.0, 0.0)
    reading = nodes.read_clock(clocks.agent)
    assert abs(reading.offset - 5) <= reading.error < 0.001


@pytest.mark.parametrize("drift", [0.0, 20e-6, -50e-6])
def test_times_of_other_nodes_are_moved_to_the_drivers_clock_with_its_drift(clocks, drift):
    """A drift of 20 ppm is 12 ms in ten minutes."""
    clocks, observed = clocks(5.0, drift)
    observed.read_clocks()
    observed.begin()
    clocks.now += 600
    costs = observed.end()
    for seconds in (1000.5, 1300.0, 1599.5):
        assert observed.driver_seconds("reward", clocks.of_node(seconds)) == pytest.approx(seconds, abs=0.0005)
        assert observed.driver_seconds("policy", seconds) == seconds  # on the driver's node
        assert observed.driver_seconds("trainer 1, rank 0", seconds) == seconds  # no worker
    assert costs["1"].clock_offset_seconds == pytest.approx(5, abs=0.0005)
    assert costs["1"].clock_drift_seconds == pytest.approx(600 * drift, abs=0.0005)
    assert 0 < costs["1"].clock_error_seconds < 0.001
    assert (costs["0"].clock_offset_seconds, costs["0"].clock_error_seconds) == (0, 0)
    assert (costs["1"].received_bytes, costs["1"].sent_bytes) == (None, None)  # of an unknown interface


def test_only_nodes_with_workers_are_prepared_all_at_once(monkeypatch, make_plan):
    """A call to a node answers only after all nodes have been called."""
    called, started = [], []

    def get(calls):
        assert len({node for node, _ in called}) == 2
        return [answer() for answer in calls]

    class Agent:
        def __init__(self, node):
            started.append(node)
            self.describe = self.call = SimpleNamespace(remote=lambda *arguments: self.answer(node, arguments))

        def answer(self, node, arguments):
            called.append((node, arguments))
            return lambda: [0.5] if arguments else (f"10.0.0.{node}", f"eth{node}", {"python": "3.11"})

    def remote(**_):
        return lambda _: SimpleNamespace(options=lambda scheduling_strategy: SimpleNamespace(
            remote=lambda: Agent(scheduling_strategy)))  # fmt: skip

    observed = object.__new__(nodes.Nodes)
    observed.ids, observed.agents, observed.environments = ["a", "b", "c", "d"], {}, [{}, {}, {}, {}]
    observed.addresses, observed.interfaces, observed.links = {}, {}, []
    observed.affinity, observed.read_clocks = lambda node: node, lambda: None
    observed._time_link = lambda *_: 0.1
    monkeypatch.setattr(nodes, "ray", SimpleNamespace(get=get, remote=remote))
    observed.prepare({"driver": 0, "policy": 2, "reference": 2, "reward": 2})
    called.clear()
    plan = make_plan("graph", "--transport", "shm")
    observed.measure(plan, lambda _: [0.5], lambda _: None)
    assert (started, sorted(observed.costs)) == ([0, 2], ["0", "2"])
    assert observed.environments == [{"python": "3.11"}, {}, {"python": "3.11"}, {}]
    assert observed.network_settings(2)["GLOO_SOCKET_IFNAME"] == "eth2"
    assert {(link.source, link.reader) for link in observed.links} == {(0, 2), (2, 0)}


def test_a_link_sends_pages_that_differ_from_the_page_of_zeros(monkeypatch):
    """The kernel gives bytes(n) one page of zeros n / 4096 times, which is no memory of its own."""
    process, count, resident = psutil.Process(), 64 * 2**20, []

    class Connection(io.BytesIO):
        def sendall(self, data):
            resident.append(process.memory_info().rss)

        shutdown = recv = lambda *_: None

    monkeypatch.setattr(nodes.socket, "create_connection", lambda _: Connection())
    before = process.memory_info().rss
    nodes.NodeAgent.__new__(nodes.NodeAgent).send("", 0, 1, count)
    assert resident[0] - before > 0.9 * count


def test_the_receiver_of_a_link_counts_what_it_has_read():
    agent = nodes.NodeAgent.__new__(nodes.NodeAgent)
    agent.address, agent.received_bytes = "127.0.0.1", 0
    port = agent.listen()
    receiving = threading.Thread(target=agent.receive, args=[2])
    receiving.start()
    agent.send("127.0.0.1", port, 2, 3_000_000)
    receiving.join(10)
    assert agent.count_received() == 3_000_000


def test_a_slow_link_reports_its_progress(monkeypatch):
    """The monitor waits as long as the report changes."""
    waits = iter([([], ["s"]), ([], ["s"]), (["s"], [])])
    counts, reported = iter([1000, 2000]), []
    agent = SimpleNamespace(
        listen=SimpleNamespace(remote=lambda: 1), receive=SimpleNamespace(remote=lambda _: None),
        send=SimpleNamespace(remote=lambda *_: 7.5), count_received=SimpleNamespace(remote=lambda: next(counts)),
    )  # fmt: skip
    monkeypatch.setattr(nodes, "ray", SimpleNamespace(get=lambda x: x, wait=lambda *_, timeout: next(waits)))
    observed = object.__new__(nodes.Nodes)
    observed.agents, observed.addresses = {0: agent, 1: agent}, {1: "10.0.0.1"}
    assert observed._time_link(0, 1, 4, 2500, reported.append) == 7.5
    assert reported == [1000, 2000]


def test_the_counters_of_an_unknown_interface_are_unknown():
    agent = nodes.NodeAgent.__new__(nodes.NodeAgent)
    agent.interface = "lo"
    assert agent.counters().received_bytes >= 0
    agent.interface = ""
    assert (agent.counters().received_bytes, agent.counters().sent_bytes) == (None, None)
