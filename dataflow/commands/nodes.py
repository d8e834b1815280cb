"""Measure several nodes on one Linux machine: each node has its own network, its own shared memory and its own raylet.

    sudo .venv/bin/python -m dataflow nodes                                    suite cluster on two nodes, five runs
    sudo .venv/bin/python -m dataflow nodes --rate 1gbit "graph shm" --runs 3  configurations and flags of run
    sudo .venv/bin/python -m dataflow nodes --nodes 3 --command "SCRIPT --address {address} ..."

The nodes are network namespaces that a bridge connects, and the kernel limits the rate of each link (tc tbf). All of
them run in one process namespace whose first process is a child of this one. If this process ends, even by kill -9,
the kernel ends all processes of the nodes, and removes their networks and their memory.
"""

import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from common.record import only_measurement
from dataflow.errors import UsageError
from dataflow.plan.command_line import OneLineParser
from dataflow.plan.plan import LINK_VARIABLE
from dataflow.workers.cleanup import ROOT

RATES = ("1gbit", "10gbit", "25gbit")
ADDRESS = "10.77.0.1:6379"
DEFAULT_RUN = ("--suite", "cluster", "--runs", "5")
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def run_setup(count: int, rate: str, command: Sequence[str]) -> int:
    """Run a command on the first of several nodes, and return its exit code; 130 if it was interrupted."""
    variables = {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_enable_metrics_collection": "0",
        "RAY_worker_niceness": "0", "RAY_enable_worker_prestart": "0",
        "TMPDIR": "/dev/shm/tmp", "DATA_FLOW_LOCK": "/dev/shm",  # of each node, unlike the lock of this process
        LINK_VARIABLE: f"{rate.removesuffix('gbit')} Gbit/s",
    }  # fmt: skip
    script, ray = (
        ROOT / "dataflow" / "nodes" / "namespaces.sh",
        Path(sys.executable).with_name("ray"),
    )
    words = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        *NAMESPACES,
        "sh",
        str(script),
        str(count),
        rate,
        str(ray),
        *command,
    ]
    nodes = subprocess.Popen(words, env=os.environ | variables)
    signal.signal(signal.SIGTERM, lambda *_: nodes.kill())
    while True:
        with suppress(KeyboardInterrupt):  # the command got the signal too, and ends its run
            code = nodes.wait()
            return 130 if code < 0 else code


def main(argv: Sequence[str]) -> int:
    parser = OneLineParser(
        __doc__, "python3 -m dataflow nodes [flags of this verb] [configurations and flags of run]"
    )
    add = parser.add_argument
    add(
        "--nodes",
        type=int,
        choices=(2, 3),
        default=2,
        help="number of nodes (default: %(default)s)",
    )
    add(
        "--rate",
        choices=RATES,
        default="10gbit",
        help="rate of each node's link (default: %(default)s)",
    )
    add("--command", help="run this command on the first node; {address} is that of the cluster")
    arguments, words = parser.parse_known_args(argv)
    command = [
        sys.executable,
        "-m",
        "dataflow",
        "run",
        *(words or DEFAULT_RUN),
        "--address",
        ADDRESS,
    ]
    if arguments.command:
        command = shlex.split(arguments.command.replace("{address}", ADDRESS))
    if os.geteuid():
        raise UsageError(
            "network namespaces need root: run sudo .venv/bin/python -m dataflow nodes ..."
        )
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        raise UsageError(
            "the kernel does not allow network namespaces here: a container needs --privileged"
        )
    with only_measurement():
        return run_setup(arguments.nodes, arguments.rate, command)
