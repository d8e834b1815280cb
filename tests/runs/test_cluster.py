"""Run flows over several nodes of one machine, as a user starts them, and see that nothing stays."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from conftest import ROOT, descendants, shared_memory_files
from faults import store_result

from dataflow.commands.nodes import in_namespaces
from dataflow.errors import UsageError
from dataflow.records import files

PLACE = ("--placement", "policy=0,reference=1,reward=1")
SIZE = ("--payload", "16MiB", "--iterations", "4", "--warmup", "1")


TRY_LINK = """ip link add bridge type bridge && ip link add port type veth peer name eth0 &&
              tc qdisc add dev port root tbf rate 1gbit burst 4mb latency 50ms"""
TRIED = subprocess.run(["unshare", "--net", "--mount", "sh", "-c", TRY_LINK], capture_output=True, text=True)
needs_namespaces = pytest.mark.skipif(
    TRIED.returncode != 0,
    reason=f"nodes need network namespaces, ip and tc (run as root, install iproute2): {TRIED.stderr.strip()}",
)


def begin(command):
    words = [sys.executable, "cluster.py", "--nodes", "2", "--rate", "1gbit", "--command", command]
    environment = os.environ | {"DATA_FLOW_LOCK": str(time.monotonic_ns())}
    return subprocess.Popen(words, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def run_words(runtime, transport, output, *flags):
    words = [
        sys.executable,
        runtime,
        "--transport",
        transport,
        *flags,
        "--allow-disturbed",
        "--output",
        output,
    ]
    return shlex.join(map(str, words)) + " --address {address}"


def left_of_nodes(tmp_path):
    """Return network interfaces, shared memory and processes that tests of this process have made."""
    return {*psutil.net_if_addrs(), *shared_memory_files(tmp_path), *descendants()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
def test_a_user_without_rights_is_told_what_is_needed():
    words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable]
    if subprocess.run([*words, "-c", "import psutil"], capture_output=True).returncode:
        pytest.skip("another user cannot read this Python")
    environment = os.environ | {"DATA_FLOW_LOCK": str(time.monotonic_ns()), "HOME": "/tmp"}
    words.append("cluster.py")
    done = subprocess.run(words, cwd=ROOT, text=True, capture_output=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: network namespaces need root: run sudo .venv/bin/python cluster.py ...\n"


def test_a_container_without_rights_is_told_what_is_needed(monkeypatch):
    monkeypatch.setattr("dataflow.commands.nodes.LIBC", SimpleNamespace(prctl=lambda *_: 0, unshare=lambda _: -1))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(UsageError, match="does not allow network namespaces here: a container needs --privileged"):
        in_namespaces(2, "1gbit", ["true"])


@needs_namespaces
def test_placed_actors_exchange_messages_over_the_link(request, tmp_path):
    records = [tmp_path / f"{name}.json" for name in ("graph", "rdt", "torch")]
    commands = [run_words("graph", "shm", records[0], *SIZE, *PLACE, "--trace")]
    if request.config.getoption("--all"):
        commands.append(run_words("store", "refs", tmp_path / "died.json", *SIZE, *PLACE, "--inject", "reward:3:die"))
        commands.append(run_words("rdt", "gloo", records[1], *SIZE, *PLACE))
        commands.append(run_words("torch", "gloo", records[2], *SIZE, *PLACE))
        commands.append(run_words("store", "refs", tmp_path / "none.json", *SIZE, "--placement", "reward=2"))
    else:
        records = records[:1]
    before = left_of_nodes(tmp_path)
    cluster = begin(f"sh -c {shlex.quote('; '.join(commands))}")
    stdout, stderr = cluster.communicate(timeout=300)
    assert left_of_nodes(tmp_path) - before == set()
    for path in records:
        (run,), environments = files.load(path).runs, files.load(path).environments
        assert (run.status, run.wrong_bytes, len(run.seconds)) == ("ok", 0, 4), run.reason
        assert run.nodes.items() >= {"driver": 0, "policy": 0, "reference": 1, "reward": 1}.items()
        assert {(link.source, link.reader, link.connections) for link in run.links} == {
            (0, 1, 1), (0, 1, 4), (1, 0, 1), (1, 0, 4),
        }  # fmt: skip
        for link in run.links:  # at 1 Gbit/s, if its buffer of 4 MB is empty at the beginning
            assert min(link.seconds) > 8 * (link.bytes - 8e6) / 1e9
        assert set(environments) == {"0", "1"} and environments["1"]["versions"] == environments["0"]["versions"]
    assert records[0].with_suffix(".trace").exists()
    assert "x link" in stdout
    if len(records) == 3:
        died = files.load(tmp_path / "died.json").runs[0]
        store_result("an actor on another node is killed", "store refs", died.reason, 1, 0, [])
        assert "reward on node 1 died" in died.reason
        assert "--place reward=2: the cluster has 2 nodes, numbered from 0" in stderr


@needs_namespaces
@pytest.mark.long
def test_a_link_that_is_slowed_or_cut_is_survived_and_named(tmp_path):
    slow, cut = tmp_path / "slow.json", tmp_path / "cut.json"
    many = ("--payload", "16MiB", "--warmup", "0", *PLACE)
    limit = "tc qdisc change dev eth0 root tbf rate 200mbit burst 4mb latency 50ms"
    last = run_words("store", "refs", cut, *many, "--iterations", "100000", "--timeout", "10")
    began = f"while [ $(stat -c %s {cut} 2>/dev/null || echo 0) -lt 10 ]; do sleep 0.1; done; sleep 20"
    commands = [
        f"{limit}; {run_words('store', 'refs', slow, *many, '--iterations', '4')}",
        f"({began}; ip link set eth0 down) & {last}",
    ]
    before, begin_seconds = left_of_nodes(tmp_path), time.monotonic()
    cluster = begin(f"sh -c {shlex.quote('; '.join(commands))}")
    assert "Traceback" not in cluster.communicate(timeout=200)[1]
    seconds, left = time.monotonic() - begin_seconds, [*map(str, left_of_nodes(tmp_path) - before)]
    (run,) = files.load(slow).runs
    store_result("the link between nodes is slowed", "store refs", run.reason or "ok", 0, seconds, left)
    assert (run.status, run.wrong_bytes) == ("ok", 0)
    assert min(link.seconds[0] * 2e8 / 8 for link in run.links if link.source == 0) > 4e6
    (run,) = files.load(cut).runs
    store_result("the link between nodes is cut", "store refs", run.reason, cluster.returncode, seconds, left)
    assert run.status == "failed" and len(run.seconds) > 0
    assert re.search("reference, reward|on node 1", run.reason), run.reason
    assert left == []


@needs_namespaces
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_of_the_nodes_stays_after_an_interrupt(tmp_path, number):
    before = left_of_nodes(tmp_path)
    many = ("--iterations", "100000", *SIZE[:2], *PLACE)
    cluster = begin(run_words("graph", "shm", tmp_path / "record.json", *many))
    deadline = time.monotonic() + 100
    while not (tmp_path / "record.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(5)
    if number == signal.SIGINT:  # as a terminal does, to the whole group
        for process in [psutil.Process(cluster.pid), *psutil.Process(cluster.pid).children(recursive=True)]:
            if os.getsid(process.pid) == os.getsid(cluster.pid):
                process.send_signal(number)
    else:
        cluster.send_signal(number)
    cluster.communicate(timeout=60)
    assert cluster.returncode in (130, -signal.SIGKILL)
    deadline = time.monotonic() + 10
    while left_of_nodes(tmp_path) - before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_of_nodes(tmp_path) - before == set()
