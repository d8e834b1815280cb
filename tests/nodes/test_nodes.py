"""Check what is measured of nodes, without a cluster."""

import io
import threading
import time
from types import SimpleNamespace

import psutil
import pytest

from dataflow.errors import RunFailed
from dataflow.nodes import agent, link, nodes, placement
from dataflow.records.schema import NodeCosts

PLACED = {"driver": 0, "policy": 0, "reference": 1, "reward": 1}


def answer(value):
    """Return a method of a Ray actor that answers with this value."""
    return SimpleNamespace(remote=lambda *_: value)


@pytest.mark.parametrize("connections", [1, 4])
def test_a_link_is_timed_until_the_last_byte_is_read(connections, monkeypatch):
    end = link.LinkEnd()
    end.address = "127.0.0.1"
    port = end.listen()
    receiving = threading.Timer(0.5, end.receive, [connections])

    def read_clock():
        if not receiving.ident:
            receiving.start()  # it begins to read so long after the clock has started
        return time.perf_counter()

    monkeypatch.setattr(link, "time", SimpleNamespace(perf_counter=read_clock))
    assert end.send("127.0.0.1", port, connections, 200_000) > 0.2
    receiving.join(5)
    assert not receiving.is_alive() and end.count_received() == 200_000


def test_a_link_sends_pages_that_differ_from_the_page_of_zeros(monkeypatch):
    """The kernel gives bytes(n) one page of zeros n / 4096 times, which is no memory of its own."""
    process, count, resident = psutil.Process(), 64 * 2**20, []

    class Connection(io.BytesIO):
        def sendall(self, data):
            resident.append(process.memory_info().rss)

        shutdown = recv = lambda *_: None

    monkeypatch.setattr(link.socket, "create_connection", lambda _: Connection())
    before = process.memory_info().rss
    link.LinkEnd().send("", 0, 1, count)
    assert resident[0] - before > 0.9 * count


def test_a_slow_link_reports_its_progress_and_its_first_pass_does_not_count(monkeypatch):
    """The monitor waits as long as the report changes."""
    waits = iter([([], ["s"]), ([], ["s"]), *[(["s"], [])] * 8])
    seconds, counts, reported = iter(range(8)), iter([1000, 2000]), []
    end = SimpleNamespace(listen=answer(1), receive=answer(None), send=SimpleNamespace(remote=lambda *_: next(seconds)),
                          count_received=SimpleNamespace(remote=lambda: next(counts)))  # fmt: skip
    monkeypatch.setattr(link, "ray", SimpleNamespace(get=lambda x: x, wait=lambda *_, timeout: next(waits)))
    measured = link.measure_link({0: end, 1: end}, "10.0.0.1", (0, 1), 2500, reported.append)
    assert [(one.source, one.reader, one.connections, one.bytes, one.seconds) for one in measured] == [
        (0, 1, 1, 2500, [1, 2, 3]), (0, 1, 4, 2500, [5, 6, 7]),
    ]  # fmt: skip
    assert reported == [1000, 2000]


@pytest.mark.parametrize(("runtime", "transport", "copies"), [("graph", "shm", 1), ("torch", "gloo", 2)])
def test_bytes_that_cross_are_counted_in_each_direction(make_plan, runtime, transport, copies):
    plan = make_plan(runtime, "--transport", transport, "--flow", "online-dpo", "--iteration-bytes", "448MiB")
    sizes = {str(edge): edge.bytes for edge in plan.sent_flow.edges}
    assert plan.crossings(PLACED).bytes_by_link([7]) == {
        (0, 1): copies * sizes["policy -> reward"], (1, 0): sizes["reward -> driver"],
    }  # fmt: skip
    assert plan.crossings(dict.fromkeys(PLACED, 0)).bytes_by_link([7]) == {}


def test_a_worker_on_another_node_and_versions_that_differ_fail_the_run():
    placement.check_placement(PLACED, PLACED)
    with pytest.raises(RunFailed, match=r"^reward runs on node 0, and node 1 was requested"):
        placement.check_placement(PLACED, PLACED | {"reward": 0})
    here = {"python": "3.11.7", "versions": {"ray": "2.60.0", "torch": "2.13.0"}}
    placement.check_versions([here, {}, here])
    for name, there in (("python", here | {"python": "3.12.1"}), ("torch", here | {"versions": {"ray": "2.60.0"}})):
        with pytest.raises(RunFailed, match=f"node 1 has {name} (3.12.1|None), and the driver's node has"):
            placement.check_versions([here, there])


class Clocks:
    """The driver's clock, which advances 0.2 ms with each reading, and a node's, which is ahead and faster."""

    def __init__(self, ahead, drift):
        self.now, self.ahead, self.drift = 1000.0, ahead, drift

    def perf_counter(self):
        self.now += 0.0002
        return self.now

    def of_node(self, seconds):
        return seconds + self.ahead + self.drift * (seconds - 1000)


@pytest.mark.parametrize("drift", [0.0, 20e-6, -50e-6])
def test_times_of_other_nodes_are_moved_to_the_drivers_clock_with_its_drift(monkeypatch, drift):
    """A drift of 20 ppm is 12 ms in ten minutes."""
    clocks, observed = Clocks(5.0, drift), object.__new__(nodes.Nodes)
    monkeypatch.setattr(nodes, "time", SimpleNamespace(perf_counter=clocks.perf_counter))
    get = lambda calls: [call() for call in calls] if isinstance(calls, list) else calls()  # noqa: E731
    monkeypatch.setattr(nodes, "ray", SimpleNamespace(get=get))
    observer = SimpleNamespace(clock=answer(lambda: clocks.of_node(clocks.perf_counter())),
                               counters=answer(lambda: agent.Counters(clocks.now, None, None, 0.0, 0.0)))  # fmt: skip
    observed.agents, observed.clocks, observed.worker_nodes = {0: observer, 1: observer}, {}, PLACED
    observed.costs = {"0": NodeCosts(), "1": NodeCosts()}
    observed.read_clocks()
    observed.begin()
    clocks.now += 600
    costs = observed.end()
    for seconds in (1000.5, 1300.0, 1599.5):
        assert observed.driver_seconds("reward", clocks.of_node(seconds)) == pytest.approx(seconds, abs=0.0005)
        assert observed.driver_seconds("policy", seconds) == seconds  # on the driver's node
        assert observed.driver_seconds("trainer 1, rank 0", seconds) == seconds  # no worker
    assert costs["1"].clock_drift_seconds == pytest.approx(600 * drift, abs=0.0005)
    assert abs(costs["1"].clock_offset_seconds - 5) <= costs["1"].clock_error_seconds < 0.001
    assert (costs["0"].clock_offset_seconds, costs["0"].clock_error_seconds) == (0, 0)
    assert (costs["1"].received_bytes, costs["1"].sent_bytes) == (None, None)  # of an unknown interface


def test_only_nodes_with_workers_are_prepared_all_at_once(monkeypatch, make_plan):
    """A call to a node answers only after all nodes have been called."""
    called, started, links = [], [], []

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
    observed.worker_nodes = {"driver": 0, "policy": 2, "reference": 2, "reward": 2}
    observed.addresses, observed.interfaces, observed.links = {}, {}, []
    observed.affinity, observed.read_clocks = lambda node: node, lambda: None
    monkeypatch.setattr(nodes, "measure_link", lambda agents, address, link, *_: links.append((address, link)) or [])
    monkeypatch.setattr(nodes, "ray", SimpleNamespace(get=get, remote=remote))
    observed.prepare()
    called.clear()
    observed.measure(make_plan("graph", "--transport", "shm"), lambda _: [0.5], lambda _: None)
    assert (started, sorted(observed.costs)) == ([0, 2], ["0", "2"])
    assert observed.environments == [{"python": "3.11"}, {}, {"python": "3.11"}, {}]
    assert observed.network_settings(2)["GLOO_SOCKET_IFNAME"] == "eth2"
    assert sorted(links) == [("10.0.0.0", (2, 0)), ("10.0.0.2", (0, 2))]


def test_the_counters_of_an_unknown_interface_are_unknown():
    observer = agent.NodeAgent.__new__(agent.NodeAgent)
    observer.interface = "lo"
    assert observer.counters().received_bytes >= 0
    observer.interface = ""
    assert (observer.counters().received_bytes, observer.counters().sent_bytes) == (None, None)
