# SPDX-License-Identifier: Apache-2.0
"""Run flows over several nodes of one machine, as a user starts them, and see that nothing stays."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time

import psutil
import pytest
from conftest import LEAVE_SECONDS, ROOT, run_words
from faults import NODE_FAULTS, store_result

from dataflow.commands import nodes
from dataflow.errors import UsageError
from dataflow.records import files

PLACE = ("--placement", "policy=0,reference=1,reward=1")
SIZE = ("--iteration-bytes", "16MiB", "--iterations", "4", "--warmup", "1")
MANY = (*SIZE[:2], "--warmup", "0", "--iterations", "100000")
TRY_LINK = """ip link add bridge type bridge && ip link add port type veth peer name eth0 &&
              tc qdisc add dev port root tbf rate 1gbit burst 4mb latency 50ms"""
TRIED = subprocess.run(
    ["unshare", "--net", "--mount", "sh", "-c", TRY_LINK],
    capture_output=True,
    check=False,
    text=True,
)
needs_namespaces = pytest.mark.skipif(
    TRIED.returncode != 0,
    reason=f"nodes need network namespaces, ip and tc (run as root, install iproute2): {TRIED.stderr.strip()}",
)


def nodes_command(*commands):
    """Return the words that run shell commands on the first of two nodes."""
    return (
        "nodes",
        "--nodes",
        "2",
        "--rate",
        "1gbit",
        "--command",
        f"sh -c {shlex.quote('; '.join(commands))}",
    )


def run_command(configuration, output, *flags):
    runtime, transport = configuration.split()
    words = run_words(
        runtime, "--transport", transport, *flags, *PLACE, "--allow-disturbed", "--output", output
    )
    return shlex.join([sys.executable, *words]) + " --address {address}"


def during_iterations(action):
    """Return shell code that does something on the first node when a run there has ended six iterations."""
    ended = "$(od -An -td8 -j16 -N8 $TMPDIR/data-flow-*/progress 2>/dev/null || echo 0)"
    return f"(until [ {ended} -gt 5 ]; do sleep 0.1; done; {action}) &"


def test_a_container_without_rights_is_told_what_is_needed(monkeypatch):
    monkeypatch.setattr(nodes.os, "geteuid", lambda: 0)
    monkeypatch.setattr(nodes, "NAMESPACES", ("false",))
    with pytest.raises(
        UsageError, match="does not allow network namespaces here: a container needs --privileged"
    ):
        nodes.main([])


@needs_namespaces
def test_a_command_that_fails_while_the_nodes_start_is_named(tmp_path, run_script):
    script = tmp_path / "setup.py"
    script.write_text(
        "from dataflow.commands import nodes\nraise SystemExit(nodes.run_setup(2, '0.5parsec', ['true']))"
    )
    finished = run_script(script, variables={"PYTHONPATH": str(ROOT)})
    assert finished.code == 1 and re.match(
        "error: on_node .* tc qdisc add .*rate.*: .*0.5parsec", finished.stderr
    )


@needs_namespaces
@pytest.mark.slow
def test_placed_actors_exchange_messages_over_the_link(tmp_path, run_script):
    record, none = tmp_path / "record.json", tmp_path / "none.json"
    commands = [run_command("graph shm", record, *SIZE, "--trace")]
    commands += [run_command("store refs", none, *SIZE).replace("reward=1", "reward=2")]
    finished = run_script(*nodes_command(*commands))
    (run,), environments = files.load(record).runs, files.load(record).environments
    assert (run.status, run.wrong_bytes, len(run.seconds)) == ("ok", 0, 4), run.reason
    assert run.nodes == {"driver": 0, "policy": 0, "reference": 1, "reward": 1}
    assert [(link.source, link.reader, link.connections, len(link.seconds)) for link in run.links] == [
        (0, 1, 1, 3), (0, 1, 4, 3), (1, 0, 1, 3), (1, 0, 4, 3),
    ]  # fmt: skip
    for link in run.links:  # at 1 Gbit/s, if its buffer of 4 MB is empty at the beginning
        assert min(link.seconds) > 8 * (link.bytes - 8e6) / 1e9
    assert (
        set(environments) == {"0", "1"}
        and environments["1"]["versions"] == environments["0"]["versions"]
    )
    assert record.with_suffix(".trace").exists() and "x link" in finished.stdout
    assert (
        "--placement policy=0,reference=1,reward=2: the cluster has 2 nodes, numbered from 0"
        in finished.stderr
    )


@needs_namespaces
@pytest.mark.long
@pytest.mark.parametrize(("fault", "action", "flags"), [
    ("an actor on another node is killed", "true", (*SIZE, "--inject", "reward:5:die")),
    ("the link between nodes is cut", "ip link set eth0 down", (*MANY, "--timeout", "10")),
])  # fmt: skip
def test_a_fault_of_another_node_is_named(tmp_path, begin_run, fault, action, flags):
    record, begin_seconds = tmp_path / "record.json", time.monotonic()
    command = run_command("store refs", record, *flags)
    script = begin_run(*nodes_command(f"{during_iterations(action)} {command}"))
    finished = script.finish()
    (run,), left = files.load(record).runs, script.leftovers()
    store_result(
        "faults",
        fault,
        "store refs",
        run.reason,
        finished.code,
        time.monotonic() - begin_seconds,
        left,
    )
    assert run.status == "failed" and len(run.seconds) > 0 and left == set()
    assert "Traceback" not in finished.stderr and re.search(NODE_FAULTS[fault], run.reason), (
        run.reason
    )


@needs_namespaces
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_of_the_nodes_stays_after_an_interrupt(tmp_path, begin_run, number):
    record, began = tmp_path / "record.json", tmp_path / "began"
    command = run_command("graph shm", record, *MANY)
    script = begin_run(*nodes_command(f"{during_iterations(f'touch {began}')} {command}"))
    pid = script.process.pid
    while not began.exists() and script.process.poll() is None:
        time.sleep(0.1)
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        # A terminal sends Ctrl-C to the whole group.
        if process.pid == pid or (
            number == signal.SIGINT and os.getsid(process.pid) == os.getsid(pid)
        ):
            process.send_signal(number)
    assert script.finish().code in (130, -signal.SIGKILL)
    assert script.leftovers(LEAVE_SECONDS) == set()
    if number == signal.SIGINT:
        assert re.match(
            r"interrupted after [1-9]\d* timed iterations", files.load(record).runs[0].reason
        )
