# SPDX-License-Identifier: Apache-2.0
"""Check what is measured of nodes, without a cluster."""

import io
import shlex
import socket
import threading
import time
from contextlib import nullcontext
from itertools import cycle
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest

from dataflow.catalogue.catalogue import suites
from dataflow.commands import nodes as command_nodes
from dataflow.commands.run import parse_arguments
from dataflow.errors import RunFailed, UsageError
from dataflow.nodes import nodes
from dataflow.records.schema import NodeCosts


@pytest.fixture
def agent(monkeypatch):
    """Return an agent of this machine's loopback interface, outside of Ray."""
    monkeypatch.setattr(nodes, "own_network", lambda: ("127.0.0.1", "lo"))
    agent = nodes.NodeAgent()
    yield agent
    agent.listener.close()


@pytest.fixture
def cluster(monkeypatch):
    """Return a cluster of four nodes, of which two have workers."""
    monkeypatch.setattr(nodes, "ray", Mock())
    cluster = object.__new__(nodes.Nodes)
    cluster.ids, cluster.agents, cluster.interfaces, cluster.clocks = (
        [f"{n}" * 56 for n in range(4)],
        {},
        {},
        {},
    )
    cluster.worker_nodes = {"driver": 0, "policy": 2, "reference": 2, "reward": 2}
    return cluster


@pytest.mark.parametrize("connections", [1, 4])
def test_a_link_is_timed_until_the_last_byte_is_read(agent, connections, monkeypatch):
    receiving = threading.Timer(0.5, agent.receive, [connections])

    def read_clock():
        if not receiving.ident:
            receiving.start()  # it begins to read so long after the clock has started
        return time.perf_counter()

    monkeypatch.setattr(nodes, "time", SimpleNamespace(perf_counter=read_clock))
    assert agent.send(agent.listener.getsockname(), connections, 200_000) > 0.2
    receiving.join(5)
    assert not receiving.is_alive()


def test_a_link_sends_pages_that_differ_from_the_page_of_zeros(agent, monkeypatch):
    """The kernel gives bytes(n) one page of zeros n / 4096 times, which is no memory of its own."""
    process, count, resident = psutil.Process(), 64 * 2**20, []

    class Connection(io.BytesIO):
        def sendall(self, data):
            resident.append(process.memory_info().rss)

        shutdown = recv = lambda *_: None

    monkeypatch.setattr(nodes.socket, "create_connection", lambda _: Connection())
    before = process.memory_info().rss
    agent.send(("", 0), 1, count)
    assert resident[0] - before > 0.9 * count


def test_an_agent_counts_what_its_node_does_and_the_counters_of_an_unknown_interface_are_unknown(
    agent,
):
    for interface in ("lo", ""):
        agent.interface = interface
        agent.begin()
        with socket.create_connection(agent.listener.getsockname()):
            costs = agent.end()
        assert (costs.received_bytes or 0) > 0 if interface else costs.received_bytes is None
        assert costs.busy_cores >= 0


@pytest.mark.parametrize("drift", [0.0, 20e-6, -50e-6])
def test_times_of_other_nodes_are_moved_to_the_drivers_clock_with_its_drift(
    cluster, monkeypatch, drift
):
    """A drift of 20 ppm is 12 ms in ten minutes. The driver's clock advances 0.2 ms with each reading."""
    now = 1000.0

    def read_clock():
        nonlocal now
        now += 0.0002
        return now

    def of_node(seconds):  # 5 s ahead, and faster or slower
        return seconds + 5 + drift * (seconds - 1000)

    monkeypatch.setattr(nodes, "time", SimpleNamespace(perf_counter=read_clock))
    nodes.ray.get = lambda result: result
    cluster.agents = {0: None, 2: SimpleNamespace(clock=Mock(remote=lambda: of_node(read_clock())))}
    cluster._call_agents = lambda function: {0: NodeCosts(), 2: NodeCosts()}
    cluster.read_clocks()
    now += 600
    costs = cluster.end()
    for seconds in (1000.5, 1300.0, 1599.5):
        assert cluster.driver_seconds("reward", of_node(seconds)) == pytest.approx(
            seconds, abs=0.0005
        )
        assert cluster.driver_seconds("driver", seconds) == seconds
    assert costs["0"].clock_error_seconds == 0 < costs["2"].clock_error_seconds < 0.001


def test_nodes_with_workers_are_described_and_the_first_pass_over_a_link_does_not_count(
    cluster, make_plan
):
    described = {
        node: nodes.NodeDescription(
            (f"10.0.0.{node}", 9), f"eth{node}", {"versions": {"torch": "2.13"}}
        )
        for node in (0, 2)
    }
    cluster._call_agents, cluster.read_clocks = lambda _: described, lambda: None
    nodes.ray.get.side_effect = cycle([(9.0, None), (0.1, None), (0.1, None), (0.1, None)])
    report, plan = (
        Mock(environments=[{"versions": {}}], run=Mock(links=[])),
        make_plan("graph", "--transport", "shm"),
    )
    cluster.measure(plan, report)
    assert [*cluster.agents] == [0, 2] and [bool(known) for known in report.environments] == [
        1,
        0,
        1,
        0,
    ]
    assert cluster.network_settings(2)["GLOO_SOCKET_IFNAME"] == "eth2"
    assert [(link.source, link.reader, link.connections, link.seconds) for link in report.run.links] == [
        (0, 2, 1, 3 * [0.1]), (0, 2, 4, 3 * [0.1]), (2, 0, 1, 3 * [0.1]), (2, 0, 4, 3 * [0.1]),
    ]  # fmt: skip
    addresses = [call.args[0][0] for call in cluster.agents[2].send.remote.call_args_list]
    assert addresses == 8 * ["10.0.0.2"] + 8 * ["10.0.0.0"]
    assert report.write.call_count == 16  # the monitor sees progress
    described[2].environment["versions"] = {"torch": "2.12"}
    with pytest.raises(
        RunFailed, match=r"the nodes have torch 2\.12, 2\.13: install the same version"
    ):
        cluster.measure(plan, report)


@pytest.fixture
def started(monkeypatch):
    """Return the commands that `dataflow nodes` starts on nodes, as root, instead of starting them."""
    commands = []
    monkeypatch.setattr(command_nodes, "require_namespaces", lambda: None)
    monkeypatch.setattr(command_nodes, "only_measurement", nullcontext)
    monkeypatch.setattr(
        command_nodes, "run_setup", lambda count, rate, command: commands.append(command) or 0
    )
    return commands


@pytest.mark.parametrize("command", ["", "  "])
def test_an_empty_command_is_rejected(started, command):
    with pytest.raises(UsageError, match="--command is empty"):
        command_nodes.main(["--command", command])
    assert started == []


@pytest.mark.parametrize(("words", "reason"), [
    (["--command", "script 'one"], "No closing quotation"),
    (["--command", "script", "--node", "3"], "put --node 3 into it"),
    (["--command", "script", "store refs"], "put 'store refs' into it"),
])  # fmt: skip
def test_a_command_that_is_not_whole_is_rejected(started, words, reason):
    with pytest.raises(UsageError, match=reason):
        command_nodes.main(words)
    assert started == []


def test_what_would_be_measured_is_said_before_it_begins_and_a_question_is_asked(
    started, monkeypatch, capsys
):
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: False))
    with pytest.raises(UsageError, match="give --yes to begin"):
        command_nodes.main([])
    plan = capsys.readouterr().out
    count = sum(len(part.names) for part in suites()["cluster"])
    assert f"suite cluster, {count} configurations x 5 runs = {5 * count} runs, about" in plan
    assert "needs root" in plan
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: "")
    with pytest.raises(UsageError, match="nothing was measured"):
        command_nodes.main([])
    assert started == []
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert command_nodes.main([]) == 0
    assert command_nodes.main(["--yes", "graph shm", "store refs", "--runs", "3"]) == 0
    assert "2 configurations x 3 runs = 6 runs, about 3 minutes" in capsys.readouterr().out
    assert command_nodes.main(["--yes", "--runs", "3"]) == 0
    measured = []
    for command in started:
        _, _, words = shlex.join(command).partition(" -m dataflow run ")
        arguments, given = parse_arguments(shlex.split(words))
        assert given["address"] == command_nodes.ADDRESS
        measured.append((arguments.suite, arguments.configurations, arguments.runs))
    of_suite = [("cluster", [], 5), ("cluster", [], 3)]
    assert measured == [of_suite[0], ("", ["graph shm", "store refs"], 3), of_suite[1]]


def test_a_command_begins_without_a_question(started, monkeypatch):
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: False))
    assert command_nodes.main(["--command", "script --address {address}"]) == 0
    assert started == [["script", "--address", command_nodes.ADDRESS]]


def test_the_plan_is_said_before_root_is_needed(monkeypatch, capsys):
    monkeypatch.setattr(command_nodes.os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="network namespaces need root"):
        command_nodes.main([])
    assert "suite cluster" in capsys.readouterr().out
