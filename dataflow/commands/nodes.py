"""Measure several nodes on one Linux machine: each node has its own network, its own shared memory and its own raylet.

    sudo .venv/bin/python -m dataflow nodes                                    the published setups
    sudo .venv/bin/python -m dataflow nodes --nodes 2 --rate 1gbit --runs 3    one setup
    sudo .venv/bin/python -m dataflow nodes --nodes 2 --suite headline         one setup with another suite
    sudo .venv/bin/python -m dataflow nodes --nodes 2 --command "SCRIPT --address {address} ..."

The nodes are network namespaces that a bridge connects, and the kernel limits the rate of each link (tc tbf). All of
them run in one process namespace whose first process is a child of this one. If this process ends, even by kill -9,
the kernel ends all processes of the nodes, and removes their networks and their memory.
"""

import ctypes
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dataflow.errors import RunFailed, UsageError, run_main
from dataflow.measure.supervisor import only_measurement
from dataflow.plan.command_line import OneLineParser
from dataflow.plan.options import RESULTS
from dataflow.plan.plan import LINK_VARIABLE

CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x20000000, 0x40000000  # <sched.h>
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
LIBC = ctypes.CDLL(None, use_errno=True)
RATES = ("1gbit", "10gbit", "25gbit")
SETUPS = ((2, "10gbit"), (2, "1gbit"), (2, "25gbit"), (3, "10gbit"))
PORT = 6379
ADDRESS = f"10.77.0.1:{PORT}"
STORE_BYTES = 3 * 2**30
START_SECONDS = 60
TEMPORARY = "/dev/shm/tmp"  # of each node
FORBIDDEN = 77  # exit code of a process that could not make the namespaces


class Node:
    """The namespaces of a node. A process that only sleeps keeps them."""

    def __init__(self, index: int, rate: str) -> None:
        self.address, self.port = f"10.77.0.{index + 1}", f"node{index}"
        # With one IPC namespace, UCX would read the memory of the other node's processes instead of sending.
        command = ["unshare", "--net", "--mount", "--ipc", "sleep", "infinity"]
        self.holder = subprocess.Popen(command, start_new_session=True)
        own = os.readlink("/proc/self/ns/mnt")
        while os.readlink(f"/proc/{self.holder.pid}/ns/mnt") == own:
            if self.holder.poll() is not None:
                raise RunFailed("unshare ended early: see the error above")
            time.sleep(0.01)
        run("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        run("ip", "link", "set", self.port, "master", "bridge", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        limit = ("root", "tbf", "rate", rate, "burst", "4mb", "latency", "50ms")
        self.run("tc", "qdisc", "add", "dev", "eth0", *limit)  # what the node sends
        run("tc", "qdisc", "add", "dev", self.port, *limit)  # what it receives
        self.run("mount", "-t", "tmpfs", "-o", "size=50%", "tmpfs", "/dev/shm")
        self.run("mkdir", TEMPORARY)

    def command(self, *words: str) -> list[str]:
        return ["nsenter", "--target", str(self.holder.pid), "--net", "--mount", "--ipc", "--wd", *words]

    def run(self, *words: str) -> None:
        run(*self.command(*words))


def run(*command: str) -> None:
    """Run a command; raise RunFailed with the last line that it printed if it fails."""
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        reason = (finished.stderr or finished.stdout).strip().splitlines()[-1:] or ["no message"]
        raise RunFailed(f"{shlex.join(command)}: {reason[0]}")


def start_nodes(count: int, rate: str, variables: dict[str, str]) -> list[Node]:
    """Return the nodes, connected, with a raylet on each; the first one is the head of the Ray cluster."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "bridge", "type", "bridge")
    run("ip", "link", "set", "bridge", "up")
    nodes = [Node(index, rate) for index in range(count)]
    ray = str(Path(sys.executable).with_name("ray"))
    for node in nodes:
        role = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        if node is not nodes[0]:
            role = [f"--address={nodes[0].address}:{PORT}"]
        settings = [f"--node-ip-address={node.address}", f"--object-store-memory={STORE_BYTES}", "--num-cpus=4",
                    "--disable-usage-stats"]  # fmt: skip
        if node is nodes[0]:
            settings.append("--temp-dir=/dev/shm/ray")
        started = subprocess.run(
            node.command(ray, "start", *role, *settings), env=os.environ | variables, timeout=START_SECONDS,
            capture_output=True, text=True, start_new_session=True,
        )  # fmt: skip
        if started.returncode:
            raise RunFailed(f"ray start on {node.address}: {started.stderr.strip().splitlines()[-1]}")
    return nodes


def run_setup(count: int, rate: str, command: Sequence[str]) -> int:
    """Start the nodes, run a command on the first one, and return its exit code."""
    variables = {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_enable_metrics_collection": "0",
        "RAY_worker_niceness": "0", "RAY_enable_worker_prestart": "0", "TMPDIR": TEMPORARY,
        LINK_VARIABLE: f"{rate.removesuffix('gbit')} Gbit/s",
    }  # fmt: skip
    nodes = start_nodes(count, rate, variables)
    process = subprocess.Popen(nodes[0].command(*command), env=os.environ | variables)
    while True:
        with suppress(KeyboardInterrupt):  # the command got the signal too, and ends its run
            return process.wait()


def in_namespaces(count: int, rate: str, command: Sequence[str]) -> int:
    """Run a setup in new namespaces, and return its exit code; raise UsageError if the kernel does not allow them.

    Their first process dies with its parent, and all others die with it.
    """
    parent = os.fork()
    if not parent:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if LIBC.unshare(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS):
            os._exit(FORBIDDEN)
        first = os.fork()
        if first:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run_main(run_first, count, rate, command)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(parent, signal.SIGKILL))
    while True:
        with suppress(KeyboardInterrupt):  # the measurement got the signal too, and ends its run
            code = os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1])
            break
    if code == FORBIDDEN:
        raise UsageError("the kernel does not allow network namespaces here: a container needs --privileged")
    return 130 if code < 0 else code


def run_first(count: int, rate: str, command: Sequence[str]) -> int:
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "proc", "proc", "/proc")
    return run_setup(count, rate, command)


def main(argv: Sequence[str]) -> int:
    parser = OneLineParser(__doc__, "python3 -m dataflow nodes [flags]")
    add = parser.add_argument
    add("--nodes", type=int, choices=(2, 3), help="number of nodes (default: all published setups)")
    add("--rate", choices=RATES, default="10gbit", help="rate of each node's link, with --nodes (default: %(default)s)")
    add("--suite", help="suite of dataflow run, with --nodes (default: that of the published setup)")
    add("--runs", type=int, default=5, help="processes per configuration (default: %(default)s)")
    add("--output-dir", type=Path, default=RESULTS / f"run-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}",
        help="folder of records and charts (default: results/run-<time>)")  # fmt: skip
    add("--command", help="run this command on the first node instead of a suite; {address} is that of the cluster")
    arguments, flags = parser.parse_known_args(argv)
    if (arguments.command or arguments.suite) and not arguments.nodes:
        raise UsageError("--command and --suite: give --nodes too")
    if arguments.command and arguments.suite:
        raise UsageError("--command and --suite: give one of them")
    if os.geteuid():  # before the lock, for which a user may have to wait
        raise UsageError("network namespaces need root: run sudo .venv/bin/python -m dataflow nodes ...")
    setups = [(arguments.nodes, arguments.rate)] if arguments.nodes else SETUPS
    codes = []
    with only_measurement():
        for count, rate in setups:
            suite = arguments.suite or ("cluster" if (count, rate) == (2, "10gbit") else "cluster-rates")
            placement = ["--placement", "policy=0,reference=1,reward=2"] if count == 3 else []
            folder = arguments.output_dir / f"{suite}-{count}-nodes-{rate}"
            command = [sys.executable, "-m", "dataflow", "run", "--suite", suite, "--runs", str(arguments.runs)]
            command += [*placement, *flags, "--output", str(folder)]
            if arguments.command:
                command = shlex.split(arguments.command.replace("{address}", ADDRESS))
            else:
                command += ["--address", ADDRESS]
            codes.append(in_namespaces(count, rate, command))
            if codes[-1] == 130:
                break
    return max(codes)
